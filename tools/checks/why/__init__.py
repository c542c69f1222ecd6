"""`tools/check why`: does `rec-summary why` name what was broken, on streams that it makes?

world (people, items, labels) ─► breaks ─► model ─► SummaryRecord ─► why ─► table of hits
"""
