"""The tree of runs that both TensorBoards are asked about; one function for each run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from rec_summary._pb import lineage_pb2, summary_pb2
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

RunState = lineage_pb2.RunState

LOSSES = [0.1, float("nan"), 2.5, float("inf"), -3.0e-20]
STEPS = [1, 2, 10, 2_000_000_000, 2**31 - 1]
LONG_STEPS = [5, 4_000_000_000, 1 << 53]  # JSON carries no larger integers exactly
WEIGHTS = np.linspace(-1, 2, 500, dtype=np.float32)
ODD_NAME = "odd #1 %41 Ünï & <b>|"


def finished(run: Path) -> None:
    """A training that ended well, with every kind of record that is exported."""
    custom_data = {"note": "a|b `c` <i>x</i>\nnext", "depth": 3, "on": True, "nan": math.nan}
    write_segment(
        run,
        *(event(step, scalar("loss/auto", loss)) for step, loss in zip(STEPS, LOSSES, strict=True)),
        event(1, histo("fc.weight/auto", WEIGHTS), scalar("üñí//°", 1.5), scalar("", 7.0)),
        summary_pb2.Event(wall_time=START, step=0, graph_def=summary_pb2.Event().graph_def),
        lineage(
            START + 50,
            train_lineage=train(status=RunState.RUNNING, step=5, start_time=START),
        ),
        lineage(
            START + 90,
            train_lineage=train(
                status=RunState.FINISHED,
                reason="all epochs done",
                step=10,
                samples=1 << 40,
                start_time=START - 5,
                host="worker-1",
                troubles={"write": 2},
            ),
        ),
        lineage(START + 91, user_defined_info=custom({**custom_data, "opt": {"beta": 0.5}})),
        lineage(
            START + 92,
            evaluation_lineage=lineage_pb2.EvaluationLineage(
                metric='{"auc": 0.75, "curve": [1, 2], "logloss": NaN}', train_step=8
            ),
        ),
        lineage(
            START + 93,
            evaluation_lineage=lineage_pb2.EvaluationLineage(
                metric='{"auc": 0.875}', train_step=10
            ),
        ),
    )


def long(run: Path) -> None:
    """Steps that need 64 bits."""
    losses = (event(step, scalar("loss", 1.0), at=START) for step in LONG_STEPS)
    write_segment(run, *losses, lineage(train_lineage=train()))


def running(run: Path) -> None:
    """A training that is under way."""
    state = train(status=RunState.RUNNING, step=3, start_time=START)
    write_segment(run, event(3, scalar("loss", 1.0)), lineage(train_lineage=state))


def stopped(run: Path) -> None:
    """A training that was asked to stop."""
    state = train(status=RunState.STOPPED, reason="Ctrl-C", start_time=START)
    write_segment(run, event(3, scalar("loss", 1.0)), lineage(train_lineage=state))


def failed(run: Path) -> None:
    """A training that ended with an error."""
    state = train(status=RunState.FAILED, reason="ValueError: x", start_time=START)
    write_segment(run, event(3, scalar("loss", 1.0)), lineage(train_lineage=state))


def ranks(run: Path) -> None:
    """Two ranks in one directory; the lineage of each is its own."""
    for rank in (0, 1):
        write_segment(
            run,
            event(1, scalar("loss", rank + 0.5)),
            lineage(train_lineage=train(status=RunState.FINISHED, rank=rank, rank_size=2)),
            rank=rank,
        )


def segments(run: Path) -> None:
    """A training in three files, of which the third goes back to an earlier step."""
    write_segment(run, *(event(step, scalar("loss", step)) for step in (1, 2)))
    write_segment(run, *(event(step, scalar("loss", step)) for step in (3, 4)))
    write_segment(run, *(event(step, scalar("loss", -step)) for step in (4, 5)))


def clash(run: Path) -> None:
    """One tag for a scalar and a histogram; and one tag that is taken by what is derived."""
    write_segment(
        run,
        event(1, scalar("w", 1.0), scalar("v/nan_count", -1.0)),
        event(2, histo("w", [1.0, 2.0]), histo("v", [1.0, math.nan])),
        event(3, scalar("w", 3.0), scalar("lineage", 4.0)),
        lineage(train_lineage=train()),
    )


def times(run: Path) -> None:
    """Wall times that are no numbers."""
    write_segment(
        run,
        event(1, scalar("loss", 1.0)),
        event(2, scalar("loss", 2.0), at=math.nan),
        event(3, scalar("loss", 3.0), at=math.inf),
        event(4, scalar("loss", 4.0)),
    )


def repeats(run: Path) -> None:
    """A step recorded at its end and again at the end of its epoch, as MindSpore does."""
    write_segment(
        run,
        event(1, scalar("loss", 1.0), histo("w", [1.0])),
        event(2, scalar("loss", 2.0), histo("w", [2.0])),
        event(2, scalar("loss", 2.5), histo("w", [5.0]), at=START + 7),
        event(3, scalar("loss", 3.0)),
    )


def histograms(run: Path) -> None:
    """Histograms of awkward arrays under one tag each."""
    write_segment(
        run,
        event(1, histo("constant", np.full(7, 3.0)), histo("one", [2.0])),
        event(1, histo("gap", [0.0] * 50 + [10.0] * 50), histo("huge", [-1e30, 1e30])),
        event(1, histo("sick", [1.0, 2.0])),
        event(2, histo("sick", [math.nan, math.nan, math.inf, -math.inf])),
        event(3, histo("sick", [1.0, 2.0, math.nan])),
        event(4, histo("sick", [1.0, 2.0])),
    )


RUNS = {
    "finished": finished,
    "long": long,
    "running": running,
    "stopped": stopped,
    "failed": failed,
    "group/ranks": ranks,
    "segments": segments,
    "clash": clash,
    "times": times,
    "repeats": repeats,
    "histograms": histograms,
    ODD_NAME: running,
}


def write_all(source: Path) -> None:
    """Writes every run below `source`."""
    for name, write in RUNS.items():
        write(source / name)
