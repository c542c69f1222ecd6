"""The names of the TensorBoard plugins that users can choose. This module imports nothing."""

DASHBOARDS = (
    "scalars",
    "histograms",
    "images",
    "text",
    "graphs",
    "hparams",
    "mesh",
    "custom_scalars",
    "pr_curves",
)
"""The plugins that records are exported to. Time Series and Distributions show the first two
again."""
