"""A loop in NumPy that shows its batches to `SummaryRecord`, in a process without MindSpore.

Arguments: the record directory, the rank, the number of ranks, the first step, the last step, and
whether the process is killed there, 0 or 1.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.programs.record_without_mindspore import Absent

STEPS, ROWS = 40, 250
COUNTRIES = np.array([49, 33, 1])


def batch_of(step: int, rank: int = 0) -> dict[str, Any]:
    """Returns the columns of a batch: users differ in how many examples they have."""
    random = np.random.default_rng([step, rank])
    user = np.minimum(random.geometric(0.1, ROWS), 40)
    score = random.random(ROWS).astype(np.float32)
    click = (random.random(ROWS) < 0.2 + 0.5 * score).astype(np.float32)
    country = random.choice(COUNTRIES, ROWS, p=[0.6, 0.3, 0.1])
    return {"score": score, "click": click, "user": user, "country": country}


def options() -> Any:
    """Returns the metrics of these columns."""
    from rec_summary import Advanced, RecommenderMetrics

    return RecommenderMetrics(
        predictions="score",
        labels="click",
        users="user",
        slices={"country": "country"},
        detail=True,
        report_steps=10,
        throughput=False,
        host=False,
        advanced=Advanced(state_secs=0, detail_every=1),
    )


def steps(first: int, last: int) -> Iterator[int]:
    """Yields the steps of a process."""
    yield from range(first, last + 1)


def main() -> None:
    """Observes and records each step."""
    sys.meta_path.insert(0, Absent())
    from rec_summary import SummaryRecord

    rank, rank_size, first, last, is_killed = map(int, sys.argv[2:])
    with SummaryRecord(
        Path(sys.argv[1]), recommender=options(), rank=rank, rank_size=rank_size
    ) as record:
        for step in record.batches(steps(first, last)):
            record.observe(**batch_of(step, rank))
            record.add_value("scalar", "loss", 1 / step)
            record.record(step)
        if is_killed:
            record.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    assert not record.troubles, record.troubles


if __name__ == "__main__":
    main()
