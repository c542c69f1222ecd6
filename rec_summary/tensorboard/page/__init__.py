"""The page of recommenders: what it answers, its routes in TensorBoard, and the page as a file."""
