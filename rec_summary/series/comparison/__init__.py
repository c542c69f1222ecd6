"""Runs beside each other: what differs, curves, groups of runs, steps in examples."""
