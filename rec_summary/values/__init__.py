"""NumPy arrays to summary values and back, within the bounds of MindSpore's viewers."""
