"""Our page in TensorBoard: what moved in the training of a recommender, and where."""
