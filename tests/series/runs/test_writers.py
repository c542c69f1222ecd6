"""Who wrote a summary file is known by its rank, its host, and its times."""

from __future__ import annotations

import pytest
from msgspec import convert, to_builtins

from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.runs.writers import Writers


def test_the_host_of_the_latest_file_of_a_writer_counts() -> None:
    def file(stamp: int, host: str, **compacted: int) -> RecordFile:
        name = RecordName(stamp, 0, host, Kind.SUMMARY, **compacted)
        return RecordFile(f"run/{name}", name)

    writers = Writers([], {})
    writers.at(file(1, "a"), 0, 10)
    assert writers.at(file(2, "b"), 6, 20).number == 1
    stored = convert(to_builtins(writers), Writers)
    for each in (writers, stored):
        assert each.at(file(3, "b"), 17, 100).number == 2  # on one host, clocks do not differ
        assert each.at(file(3, "b"), 18, 99).last == 100
        assert each.at(file(4, "b"), 30, 40).number == 1
        assert each.continued(file(5, "b", last=6, generation=1)) is None
        compacted = file(3, "b", last=4, generation=1)
        assert each.continued(compacted) is each.known(compacted) is each.writers[1]
    with pytest.raises(ValueError, match="no such writer"):
        Writers([], {"file": 0})
