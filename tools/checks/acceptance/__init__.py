"""Does TensorBoard show everything that was recorded, and nothing else?

    records ─► recorded.py ─► expected.py ─────────────┐
    dashboards.json (for the fixed records) ───────────┼─► comparison.py ─► a table
    records ─► export ─► TensorBoard over HTTP ─► shown.py
    records ───────────► TensorBoard over HTTP ─► shown.py

Scalars, histograms, images and curves are compared with the records of any tree. They are read
with the record reader and the protobufs alone, and named by the rules in the documentation, not
by the export's code.

Texts, graphs, hyper-parameters, meshes, charts and embedding tables are mapped by many rules. For
the fixed records (`trees.py`) they are compared with dashboards.json, which `--update` writes and
people review; for any other tree, all three ways must show the same.

Not covered: two processes that record as one rank at the same time.
"""
