"""Records that the tests of several commands read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rec_summary._pb import lineage_pb2
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    scalar,
    train,
    write_segment,
)


@pytest.fixture
def three_runs(tmp_path: Path) -> Path:
    """Three runs with different learning rates."""
    for index, rate in enumerate((0.1, 0.01, 0.001)):
        described = train(
            status=lineage_pb2.RunState.FINISHED, step=3, samples=192, host="worker", pid=7
        )
        described.hyper_parameters.learning_rate = rate
        metric = json.dumps({"auc": 0.6 + index / 10})
        write_segment(
            tmp_path / "records" / f"run_{index}",
            event(1, scalar("loss/auto", 0.7), histo("w", [1.0, 2.0])),
            event(2, scalar("loss/auto", math.nan)),
            event(3, scalar("loss/auto", 0.5)),
            lineage(START, train_lineage=described),
            lineage(START, user_defined_info=custom({"team": "ads"})),
            lineage(START, evaluation_lineage=lineage_pb2.EvaluationLineage(metric=metric)),
        )
    return tmp_path / "records"


@pytest.fixture
def damaged(three_runs: Path) -> Path:
    """A file of `three_runs`, of which a bit in the data of a record is flipped."""
    [path] = (three_runs / "run_0").glob("*_MS")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))
    return path
