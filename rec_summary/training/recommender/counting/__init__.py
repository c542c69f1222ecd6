"""The side of the writer's thread: it counts steps, makes reports, and stores states."""
