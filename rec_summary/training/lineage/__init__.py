"""Lineage: the data, network and hyper-parameters of a run."""
