"""Checkpoints for the loss landscape."""
