"""Runs beside each other: what differs, where curves part, groups of runs, steps in examples."""
