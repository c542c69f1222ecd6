"""What the health of embedding tables costs the training thread, for each batch.

    python -m tools.benchmarks.tables [--times 500] [--rows 100000]

26 tables, 4,096 ids each, drawn by Zipf's law, as columns of one matrix. The times are processor
times of the thread.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.health import TableHealth

_TABLES, _BATCH, _BATCHES = 26, 4096, 20


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--sample-one-in", type=int, default=16)
    parser.add_argument("--unknown-id", type=int)
    arguments = parser.parse_args()
    rows = arguments.rows
    random = np.random.default_rng(0)
    batches = [
        ((random.zipf(1.2, (_BATCH, _TABLES)) - 1) % rows).astype(np.int32) for _ in range(_BATCHES)
    ]
    options = FrequencyOptions(rows, arguments.unknown_id, arguments.sample_one_in)
    tables = [
        TableHealth(TouchedRows(TouchedOptions(rows)), IdFrequency(options)) for _ in range(_TABLES)
    ]
    times = []
    for step in range(arguments.times):
        batch = batches[step % _BATCHES]
        began = time.thread_time()
        for column, table in enumerate(tables):
            table.add(batch[:, column])
        times.append(1000 * (time.thread_time() - began))
    times.sort()
    print(
        f"{_TABLES} tables of {rows:,} rows, {_BATCH} ids each: "
        f"mean {statistics.mean(times):.3f} ms, median {statistics.median(times):.3f} ms, "
        f"p99 {times[int(0.99 * len(times))]:.3f} ms, largest {times[-1]:.3f} ms"
    )
    began = time.thread_time()
    for table in tables:
        table.frequency.skew()
        table.touched.count()
    print(f"summary of all: {1000 * (time.thread_time() - began):.1f} ms")


if __name__ == "__main__":
    main()
