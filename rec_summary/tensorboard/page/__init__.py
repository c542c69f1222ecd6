"""The page Recommender: its data, its module, and the same as one file."""
