"""Downsampling of lines while they are read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.tables.plot import Line, important, read_lines
from tests.support.record_dirs import event, scalar, write_segment


def test_long_series_are_downsampled_and_short_ones_are_not(tmp_path: Path) -> None:
    heights = [math.sin(step) for step in range(1000)]
    heights[500] = 9.0
    events = [event(1 + step, scalar("long", heights[step])) for step in range(1000)]
    events[10:10] = [event(10, scalar("short", step)) for step in range(3)]
    events += [event(1000, scalar("long", 3.0))]  # recorded again
    write_segment(tmp_path / "run", *events)
    long, short = read_lines(find_runs(str(tmp_path)), EVERYTHING, Report(), most_points=40)
    assert (short.x.tolist(), short.y.tolist()) == ([10], [2.0])
    assert 10 <= len(long.x) <= 40
    assert (np.diff(long.x) > 0).all()
    assert long.y.max() == 9.0
    assert (long.x[0], long.x[-1], long.y[-1]) == (1, 1000, 3.0)


def test_a_restart_replaces_the_steps_that_come_again(tmp_path: Path) -> None:
    steps = [*range(1, 61), *range(31, 91)]
    for most in (20, 20_000):
        path = tmp_path / str(most)
        events = (event(step, scalar("loss", count)) for count, step in enumerate(steps))
        write_segment(path, *events)
        [line] = read_lines(find_runs(str(path)), EVERYTHING, Report(), most_points=most)
        assert (line.x[0], line.x[-1], line.y[-1]) == (1, 90, 119)
        assert (np.diff(line.y) > 0).all()  # no value of a step that came again


def drawn(*tags: str) -> list[str]:
    """Returns which of these tags are drawn, in their order."""
    lines = [Line("run", tag, np.zeros(0, np.int64), np.zeros(0)) for tag in tags]
    return list(dict.fromkeys(line.tag for line in important(lines)))


def test_without_a_choice_of_tags_what_matters_is_drawn() -> None:
    tags = ["loss/auto", "recommender/auc/lifetime", "recommender/calibration/lifetime"]
    tags += ["eval/auc", "learning_rate/auto"]
    others = ["rec_summary/records", "recommender/table/a/ids"]
    found = drawn(*others, *tags)
    assert set(found) == set(tags)
    assert found[:3] == tags[:3]
    assert drawn(*others) == others[::-1]  # telemetry's own last
    windows = (f"recommender/auc/{window}" for window in ("decayed_100000", "last_5000"))
    assert "recommender/auc/last_5000" in drawn(*windows, *others, *tags)
    groups = [f"learning_rate/group_{number}/auto" for number in range(3)]
    assert set(drawn(*others, *tags[:-1], *groups)) & set(groups) == set(groups[:2])
    heads = [f"recommender/{task}/auc/last_5000" for task in ("ctr", "cvr")]
    named = ["loss/auto", "learning_rate/auto", "eval/auc", *heads]
    assert set(drawn(*others, *named)) == set(named)
