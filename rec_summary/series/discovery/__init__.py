"""Which runs a tree has, and in which of them something happens."""
