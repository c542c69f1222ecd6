"""Benchmarks: what the project claims about its speed and its memory, to be run by anyone."""
