"""Record files of any number of ranks, restarts and rotations, read as clean series."""
