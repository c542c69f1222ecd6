from __future__ import annotations

from typing import Any

import pytest

from rec_summary.series.options import ArgumentError, ExportOptions, Selection


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ({"tags": "("}, "the choice of tags is invalid"),
        ({"plugins": ["scalar"]}, "Received: 'scalar'. Expected: one or more of scalars, "),
        ({"plugins": []}, "the choice of plugins is invalid"),
        ({"since": 1.5}, "since is invalid. Received: 1.5. Expected: an int"),
        ({"until": True}, "until is invalid"),
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
    assert [selection.step(step) for step in range(1, 5)] == [False, True, True, False]
    assert [selection.tag(tag) for tag in ("loss/auto", "a/loss")] == [True, False]
    assert [selection.plugin(name) for name in ("text", "scalars")] == [True, False]
    everything = Selection(ExportOptions())
    assert everything.step(-1)
    assert everything.tag("")
    assert everything.plugin("mesh")
