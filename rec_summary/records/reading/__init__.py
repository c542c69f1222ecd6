"""Finding, reading, verifying and repairing record files."""
