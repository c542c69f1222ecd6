"""Metrics by the values of a column: states, sums that add up, what is reported of them."""
