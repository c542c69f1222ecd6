"""A real TensorBoard and a real browser, for tests and for pictures."""
