"""`RecommenderMetrics`: metrics of a recommender, computed inside the training job.

Modules are options (`config`, `task`, `slices`, `columns`), what takes values from a step
(`inputs`, `tables`), what computes (`task_metrics`, `meters`, `aggregator`), what says which inputs
cannot be right (`mistakes`) and what keeps states (`states`, `persistence`); `telemetry` joins
them.
"""
