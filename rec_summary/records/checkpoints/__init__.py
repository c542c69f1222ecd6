"""Checkpoint files, read without MindSpore."""
