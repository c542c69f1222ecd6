import re
import socket

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rec_summary.records.format.names import Kind, RecordName, check_affixes, parse_name, this_host

hosts = st.from_regex(r"[A-Za-z][A-Za-z0-9.-]{0,30}", fullmatch=True)


@given(st.integers(0, 2**40), st.integers(0, 9999), hosts, st.sampled_from(Kind))
def test_a_name_parses_into_what_made_it(stamp, rank, host, kind):
    name = RecordName(stamp, rank, host, kind)
    assert parse_name(str(name)) == name


def made(stamp, last=None, generation=0, rank=0, kind=Kind.SUMMARY):
    return RecordName(stamp, rank, "host", kind, last=last, generation=generation)


def test_which_files_a_compacted_file_covers():
    file = made(5, 9, 2)
    assert parse_name(str(file)) == file
    for other in (made(5), made(9), made(6, 8, 7), made(5, 8, 9), made(6, 9, 3), made(5, 9, 1)):
        assert file.covers(other)
        assert not other.covers(file)
    beyond = [made(4), made(10), made(5, 10), made(4, 9), made(5, 9, 3)]
    apart = [made(5, rank=1), made(5, kind=Kind.LINEAGE), made(6, 8, 0, 1)]
    assert not any(file.covers(other) for other in (file, *beyond, *apart))
    assert not made(5).covers(made(5))
    assert made(9, 5).end == 9  # a name of somebody else


@pytest.mark.parametrize(
    ("name", "stamp", "rank", "kind"),
    [
        ("events.out.events.summary.1700000000.0.node-3_MS", 1700000000, 0, Kind.SUMMARY),
        ("events.out.events.summary.1700000000.7.a.b.c_lineage", 1700000000, 7, Kind.LINEAGE),
        ("mine.out.events.summary.1700000000.1.host", 1700000000, 1, Kind.SUMMARY),
        ("events.out.events.summary.1589500000.oldhost_MS", 1589500000, 0, Kind.SUMMARY),
        ("out.events.summary.1700000000.host_lineage", 1700000000, 0, Kind.LINEAGE),
        ("out.events.summary.1700000000.3.host_MS", 1700000000, 3, Kind.SUMMARY),
        ("x.summary.5", 5, 0, Kind.SUMMARY),
        ("my_summary.5_lineage", 5, 0, Kind.LINEAGE),
        ("summary.5.events.summary.7.2.h", 5, 0, Kind.SUMMARY),  # the first, as in MindInsight
    ],
)
def test_names_of_mindspore_are_understood(name, stamp, rank, kind):
    parsed = parse_name(name)
    assert (parsed.stamp, parsed.rank, parsed.kind) == (stamp, rank, kind)


def test_foreign_names_tell_their_writers_apart():
    names = ("x.summary.5", "y.summary.5", "x.summary.5.host", "events.out.events.summary.5.0.host")
    parsed = [parse_name(name) for name in names]
    assert len({(name.prefix, name.host) for name in parsed}) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "x.summary.",
        "summary5",
        "summary.a",
        "",
        "events.out.tfevents.1700000000.host",
        "events.out.events.summary.now.0.h_MS",
        "a.ckpt",
    ],
)
def test_other_names_are_not_record_files(name):
    assert parse_name(name) is None


def test_mindinsight_finds_our_summary_files_and_leaves_lineage_and_locks_alone():
    # MindInsight's rule, from FORMATS: names matching this that do not end in _lineage
    from rec_summary.records.locks import LOCK_NAME

    rule = re.compile(r"summary\.\d+")
    assert rule.search(str(RecordName(1, 0, this_host(), Kind.SUMMARY)))
    assert str(RecordName(1, 0, this_host(), Kind.LINEAGE)).endswith("_lineage")
    assert not rule.search(LOCK_NAME)


prefixes = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
suffixes = st.from_regex(r"[A-Za-z0-9_.-]{0,20}", fullmatch=True)


@given(st.integers(0, 2**40), st.integers(0, 9999), hosts, prefixes, suffixes)
def test_names_with_affixes_of_the_users_own_are_found_again(stamp, rank, host, prefix, suffix):
    assume("summary" not in prefix + suffix and not suffix.endswith("_lineage"))
    check_affixes(prefix, suffix)
    for kind in Kind:
        name = str(RecordName(stamp, rank, host, kind, prefix, suffix))
        parsed = parse_name(name)
        assert (parsed.stamp, parsed.rank, parsed.kind) == (stamp, rank, kind)
        assert parsed.prefix == prefix
        assert str(parsed) == name
        assert [int(number) for number in re.findall(r"summary\.(\d+)", name)] == [stamp]
        assert name.endswith("_lineage") is (kind is Kind.LINEAGE)


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [("events", "_MS"), ("xx_", "_yy"), ("my.run-1", ""), ("1", ".log"), ("e", "_lineage2")],
)
def test_mindspores_affixes_and_a_few_more_are_allowed(prefix, suffix):
    check_affixes(prefix, suffix)
    name = str(RecordName(5, 1, "host", Kind.SUMMARY, prefix, suffix))
    parsed = parse_name(name)
    assert (str(parsed), parsed.stamp, parsed.rank, parsed.kind) == (name, 5, 1, Kind.SUMMARY)


@pytest.mark.parametrize(
    ("prefix", "suffix", "error"),
    [
        ("", "_MS", ValueError),
        (".hidden", "_MS", ValueError),
        ("../up", "_MS", ValueError),
        ("a/b", "_MS", ValueError),
        ("a\n", "_MS", ValueError),
        ("a\0", "_MS", ValueError),
        ("é", "_MS", ValueError),
        ("x.summary.5", "_MS", ValueError),
        (5, "_MS", TypeError),
        (None, "_MS", TypeError),
        ("events", "_lineage", ValueError),
        ("events", "_my_lineage", ValueError),
        ("events", "/../x", ValueError),
        ("events", "_MS\n", ValueError),
        ("events", ".out.events.summary.5", ValueError),
        ("events", None, TypeError),
        ("events", b"_MS", TypeError),
    ],
)
def test_affixes_that_would_leave_the_directory_or_hide_the_file_are_refused(prefix, suffix, error):
    with pytest.raises(error, match=r"(?s)file_(pre|suf)fix is invalid\. Received: .* Expected: "):
        check_affixes(prefix, suffix)


CHARACTERS = "letters, digits, `_`, `.` and `-` (ASCII)"


@pytest.mark.parametrize(
    ("prefix", "suffix", "what", "received", "expected"),
    [
        (5, "_MS", "file_prefix", "5", "a str"),
        ("events", 5, "file_suffix", "5", "a str"),
        (
            *("-x", "_MS", "file_prefix", "'-x'"),
            f"{CHARACTERS}, not beginning with `.` or `-`, without `summary.<digit>`",
        ),
        (
            *("events", "_lineage", "file_suffix", "'_lineage'"),
            f"{CHARACTERS}, not ending in `_lineage`, without `summary.<digit>`",
        ),
    ],
)
def test_a_refused_affix_is_named_with_what_is_allowed(prefix, suffix, what, received, expected):
    with pytest.raises((TypeError, ValueError)) as caught:
        check_affixes(prefix, suffix)
    assert str(caught.value) == f"{what} is invalid. Received: {received}. Expected: {expected}."


def test_all_characters_of_an_affix_are_checked():
    characters = map(chr, range(256))
    allowed = {each for each in characters if re.fullmatch(r"[A-Za-z0-9_.-]", each)}
    assert {each for each in map(chr, range(256)) if _allows("x" + each, "")} == allowed
    assert {each for each in map(chr, range(256)) if _allows("x", each)} == allowed
    assert {each for each in map(chr, range(256)) if _allows(each, "")} == allowed - {".", "-"}


def _allows(prefix, suffix):
    try:
        check_affixes(prefix, suffix)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("node-3.example.org", "node-3.example.org"),
        ("Node_3", "Node-3"),
        ("a/b c\né", "a-b-c--"),
        ("", "localhost"),
    ],
)
def test_a_host_has_no_characters_that_a_name_must_not_have(name, shown):
    assert this_host(name) == shown
    assert this_host() == this_host(socket.gethostname())
    assert parse_name(str(RecordName(5, 0, this_host(name), Kind.SUMMARY))).host == shown
