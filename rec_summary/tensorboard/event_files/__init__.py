"""Records exported to TensorBoard event files."""
