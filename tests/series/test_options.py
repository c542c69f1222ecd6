from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest

from rec_summary.errors import ArgumentError
from rec_summary.series.options import ExportOptions, Selection, Since, read_since


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ({"tags": "("}, "the choice of tags is invalid"),
        ({"plugins": ["scalar"]}, "Received: 'scalar'. Expected: one or more of scalars, "),
        ({"plugins": []}, "the choice of plugins is invalid"),
        ({"since": 1.5}, "since is invalid. Received: 1.5. Expected: an int"),
        ({"until": True}, "until is invalid. Received: True. Expected: an int"),
        ({"until": "later"}, "until is invalid. Received: 'later'. Expected: a step"),
        ({"since": "1h", "until": "2h"}, "since is invalid.*a time not after `until`"),
        ({"since": 5, "until": 4}, "a step not after `until`, which is 4"),
        ({"max_points": 9}, "an int of at least 10"),
        ({"tensors": "csv"}, "'npy', or None"),
    ],
)
def test_invalid_options_are_reported(what: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        ExportOptions(**what)


def test_the_same_choice_has_the_same_fingerprint() -> None:
    first = ExportOptions(plugins=["text", "scalars"], since=1)
    assert first.fingerprint() == ExportOptions(plugins=("scalars", "text"), since=1).fingerprint()
    assert first.fingerprint() != ExportOptions(plugins=("scalars",), since=1).fingerprint()
    assert ExportOptions(plugins="text").plugins == ("text",)


def test_the_selection() -> None:
    selection = Selection(ExportOptions(tags="^loss", plugins=["text"], since=2, until=3))
    assert [selection.among(step, 0.0) for step in range(1, 5)] == [False, True, True, False]
    assert [selection.tag(tag) for tag in ("loss/auto", "a/loss")] == [True, False]
    assert [selection.plugin(name) for name in ("text", "scalars")] == [True, False]
    everything = Selection(ExportOptions())
    assert everything.among(-1, 0.0)
    assert everything.tag("")
    assert everything.plugin("mesh")


def test_since_is_a_step_an_age_or_a_date() -> None:
    assert ExportOptions(since="7").fingerprint() == ExportOptions(since=7).fingerprint()
    date = ExportOptions(since="2026-11-01")
    moment = datetime(2026, 11, 1).timestamp()
    assert date.beginning == Since(wall_time=moment)
    assert date.fingerprint() == ExportOptions(since="2026-11-01T00:00").fingerprint()
    assert date.fingerprint() != ExportOptions(since=1).fingerprint()
    selection = Selection(date)
    assert selection.times(np.array([moment - 1, moment, moment + 1])).tolist() == [0, 1, 1]
    assert selection.among(-5, moment)
    with pytest.raises(ArgumentError, match=r"since is invalid. Received: 'yesterday'"):
        ExportOptions(since="yesterday")


def test_until_is_a_step_an_age_or_a_date() -> None:
    assert ExportOptions(until="7").fingerprint() == ExportOptions(until=7).fingerprint()
    moment = datetime(2026, 11, 2).timestamp()
    day = Selection(ExportOptions(since="2026-11-01", until="2026-11-02"))
    times = np.array([moment - 90_000, moment - 1, moment, moment + 1])
    assert (
        day.times(times).tolist() == [0, 1, 1, 0] == [day.among(0, time) for time in times.tolist()]
    )
    assert day.among(10**12, moment)
    assert not Selection(ExportOptions(since=3, until="1d")).times(datetime.now().timestamp())


def test_what_since_means() -> None:
    assert read_since("5000", 100.0) == Since(step=5000)
    assert read_since("2h", 10_000.0) == Since(wall_time=2800.0)
    assert read_since("1.5m", 100.0) == Since(wall_time=10.0)
    moment = datetime(2026, 1, 31, 12).timestamp()
    assert read_since("2026-01-31T12:00", 0.0) == Since(wall_time=moment)
    for text in ("", "soon", "2 weeks", "h"):
        with pytest.raises(ArgumentError, match="since is invalid"):
            read_since(text, 0.0)
