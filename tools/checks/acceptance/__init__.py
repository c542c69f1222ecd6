"""Does TensorBoard show all that was recorded, and nothing else?

Records are read here with the record reader and the protobufs alone, and what TensorBoard is
to show of them is worked out anew from the rules in the documentation; none of the export's
mappings is used. Then a real TensorBoard is asked over HTTP, with each of its loaders.

    records.py ─► series.py ─► a dashboard's expected ─┐
                                                       ├─► comparison.py ─► a table
    records ─► export ─► TensorBoard ─► its shown ─────┘

Each dashboard is a module with `NAME`, `expected(records)` and `shown(server)`, both of which
yield pairs of a key and a value, and `same(expected, shown)` if values are not simply equal.

Not covered: two processes that record as one rank at the same time.
"""
