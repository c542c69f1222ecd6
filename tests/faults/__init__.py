"""Faults: real processes that are killed, starved and lied to, and what is left afterwards."""
