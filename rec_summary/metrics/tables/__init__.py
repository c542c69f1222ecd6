"""Embedding tables: health, cardinality, frequency of ids, row norms."""
