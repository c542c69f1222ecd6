import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.records.names import Kind, RecordName, parse_name, this_host

hosts = st.from_regex(r"[A-Za-z][A-Za-z0-9.-]{0,30}", fullmatch=True)


@given(st.integers(0, 2**40), st.integers(0, 9999), hosts, st.sampled_from(Kind))
def test_a_name_parses_into_what_made_it(stamp, rank, host, kind):
    name = RecordName(stamp, rank, host, kind)
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    ("name", "stamp", "rank", "kind"),
    [
        ("events.out.events.summary.1700000000.0.node-3_MS", 1700000000, 0, Kind.SUMMARY),
        ("events.out.events.summary.1700000000.7.a.b.c_lineage", 1700000000, 7, Kind.LINEAGE),
        ("mine.out.events.summary.1700000000.1.host", 1700000000, 1, Kind.SUMMARY),
        ("events.out.events.summary.1589500000.oldhost_MS", 1589500000, 0, Kind.SUMMARY),
    ],
)
def test_names_of_mindspore_are_understood(name, stamp, rank, kind):
    parsed = parse_name(name)
    assert (parsed.stamp, parsed.rank, parsed.kind) == (stamp, rank, kind)


@pytest.mark.parametrize(
    "name",
    ["", "events.out.tfevents.1700000000.host", "events.out.events.summary.now.0.h_MS", "a.ckpt"],
)
def test_other_names_are_not_record_files(name):
    assert parse_name(name) is None


def test_mindinsight_finds_our_summary_files_and_leaves_lineage_and_locks_alone():
    # MindInsight's rule, from FORMATS: names matching this that do not end in _lineage
    from rec_summary.records.directory import LOCK_NAME

    rule = re.compile(r"summary\.\d+")
    assert rule.search(str(RecordName(1, 0, this_host(), Kind.SUMMARY)))
    assert str(RecordName(1, 0, this_host(), Kind.LINEAGE)).endswith("_lineage")
    assert not rule.search(LOCK_NAME)
