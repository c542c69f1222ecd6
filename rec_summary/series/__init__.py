"""Record files of any number of ranks, restarts and rotations, read as clean series.

`EventReader` (module `event_reader`) reads one record file, from any record boundary on. It
yields batches (module `batch`): one record or many records in a row, behind one interface. Which of
the two a batch is, is decided once, when its piece of the file is scanned::

    with EventReader(file, report, offset) as reader:
        for batch in reader:
            if batch.kind == SUMMARY:
                part = batch.select(selection, kinds)  # tags and steps, kinds of values
                part.scalars()     # columns: tags, codes, steps, wall times, values
                part.records()     # one by one, with `event`, `step`, `values`
            else:
                [record] = batch.records()  # a graph, a version, lineage
            offset = reader.offset  # where a later reader goes on

`batch.series()` names the series with their steps, `batch.part(first, last)` is a slice, and
`batch.frames()` returns the events of an event file, or None where values must be converted.

`NewRecords` (module `new_records`) reads files time and again: what is new, and what could not be
read before.

`Cuts` (module `cuts`) takes all values of one writer and finds where training began again; the
values are passed on, and each cut before the record that shows it. `StepBuffer` (module
`step_buffer`) returns finished batches, in which the later value of a step has won::

    for item in cuts.take(batch):
        if isinstance(item, Cut):
            ...  # values before item.row count below item.step only
        else:
            for part in buffer.add(item):  # at the end, buffer.end()
                part.scalars()  # or any other method of a batch

Records in short (room `overview`): the content of a run, its last values, the faults of a file.

Whole runs (module `values`): `History` knows who wrote which file, and what restarts supersede.
`finished` yields the writers and finished batches of the values that count, `finished_scalars` the
same as columns (`scalars_in_memory` reads each file once for that), and `recorded_values` value by
value.
"""

DASHBOARDS = (
    "scalars",
    "histograms",
    "images",
    "text",
    "graphs",
    "hparams",
    "mesh",
    "custom_scalars",
    "pr_curves",
)
"""The plugins that records are exported to. Time Series and Distributions show the first two
again."""
