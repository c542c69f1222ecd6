"""Benchmarks: what this package costs, beside other packages that do the same (`tools/bench`)."""
