"""The side of the metrics' thread: it counts steps, makes reports, and stores states."""
