"""Computation graphs and data pipelines to the Graphs dashboard."""
