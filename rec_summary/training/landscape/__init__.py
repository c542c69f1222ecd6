"""Checkpoints and input rows for the loss landscape."""
