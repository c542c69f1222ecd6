"""`SummaryRecord`: records from a training loop of your own."""
