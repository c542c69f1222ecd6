"""`SummaryRecord`: records from a custom training loop."""
