"""`SummaryCollector`: a callback that records training."""
