"""The list of what runs for one more scalar."""

from __future__ import annotations

import pytest

from tools.checks import ways


def test_the_ways_are_listed_from_the_record_file_to_both_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ways.main() == 0
    provider, _, export = capsys.readouterr().out.partition("to an event file: ")
    for way, end in ((provider, "provider.data_provider"), (export, "event_files.event_file")):
        for module in ("records.reading.reader", "series.event_reader", f"tensorboard.{end}"):
            assert f" rec_summary.{module}: " in way
        assert "mindspore" not in way


def test_a_way_that_is_too_long_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert ways.main(most=1) == 1
    assert "at most 1" in capsys.readouterr().out
