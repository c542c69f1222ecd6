"""Records in short: the content of a run, its last values, the faults of a file."""
