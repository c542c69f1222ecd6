"""Many records of the same shape, decoded together as columns."""
