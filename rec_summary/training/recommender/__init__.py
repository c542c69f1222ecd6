"""`RecommenderMetrics`: metrics of a recommender, computed inside the training job."""
