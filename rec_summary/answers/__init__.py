"""Answers to questions about whole runs: which part moved a metric, and since when."""
