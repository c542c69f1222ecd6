"""Streaming metrics of recommender training: pure numpy, no I/O, states that merge."""
