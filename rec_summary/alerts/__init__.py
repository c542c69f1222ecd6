"""Alerts from records: rules that are watched while a training writes.

    rule text ─► rules ──────┐
    record files ─► watching ┴─► states (when alerts begin and end) ─► delivery

Nothing goes to a network.
"""
