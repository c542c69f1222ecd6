"""Whole runs: who wrote them, and which of their values count."""
