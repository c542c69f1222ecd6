"""Long runs of a fuzzer on everything that reads what a stranger may have written."""
