"""Checks the documentation: where its links lead, and whether the code in it runs."""
