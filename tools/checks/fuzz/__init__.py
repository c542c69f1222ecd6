"""Long runs of a fuzzer on everything that reads files of unknown origin."""
