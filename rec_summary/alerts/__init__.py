"""Alerts from records: rules that are watched while a training writes.

    rule text ─► grammar ─► conditions ─┐
    record files ─► watching ─► values ─┴► rules (state machine) ─► actions

`conditions` are what a rule consists of, `grammar` reads them from text, `builtin` has
those with a name of their own and reads files of rules, `rules` decides when an alert
begins and ends and does no I/O, `watching` reads records, and `actions` and `delivery`
tell of alerts. Nothing goes to a network unless a webhook is named.
"""
