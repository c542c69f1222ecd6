"""`RecommenderMetrics`: metrics of a recommender, computed inside the training job.

Modules are options (`config`, `task`, `slices`, `columns`), what takes values from a step on the
training thread (`inputs`, `rows`, `telemetry`; of MindSpore `step_reader` and `tables`), and
`counting`, which a thread for metrics does.
"""
