"""`RecommenderMetrics`: telemetry of a recommender inside the training job."""
