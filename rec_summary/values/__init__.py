"""Numpy arrays to summary values, and the bounds that MindSpore's viewers rely on."""
