"""`SummaryCollector`: the callback and what it records from a step."""
