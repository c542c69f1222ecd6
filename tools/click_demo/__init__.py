"""The demo: a Wide & Deep click model, trained online and recorded with rec_summary.

Run it with `tools/demo`. The way of the data, one module a stage:

    movielens | synthetic ─► Impressions ─► stream (endless batches) ─► training ─► records
                                  features (columns of the model) ┘         └ model, progress
"""
