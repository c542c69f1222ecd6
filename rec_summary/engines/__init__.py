"""Units of work on an engine: in this process, in processes beside it, or on a cluster."""
