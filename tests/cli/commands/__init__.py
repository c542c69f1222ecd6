"""The command, one concern in a module."""
