"""The sub-commands of `rec-summary`: a module for each, or for a few that belong together."""
