"""A real TensorBoard and a real browser: to check what a person sees, and to take pictures."""
