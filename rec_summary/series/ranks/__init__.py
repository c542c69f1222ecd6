"""The ranks of a run together: their metrics as one, and what of them differs."""
