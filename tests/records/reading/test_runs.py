import dataclasses
import math
import os
import re
import shutil

import pytest

from rec_summary.errors import SourceError
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import find_runs, list_files, run_name


def touch_run(path, stamp=1700000000, rank=0):
    path.mkdir(parents=True, exist_ok=True)
    (path / f"events.out.events.summary.{stamp}.{rank}.host_MS").write_bytes(b"")


def test_a_single_directory_is_named_by_itself(tmp_path):
    touch_run(tmp_path / "exp" / "lr=0.1")
    [run] = find_runs(tmp_path / "exp" / "lr=0.1")
    assert run.name == "lr=0.1"


def test_a_tree_is_named_by_relative_paths(tmp_path):
    touch_run(tmp_path / "b" / "run")
    touch_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert [run.name for run in find_runs(tmp_path)] == ["a", "b/run"]


def test_a_run_with_runs_inside_keeps_every_name_distinct(tmp_path):
    for path in ("x", "x/x"):
        touch_run(tmp_path / path)
    assert [run.name for run in find_runs(tmp_path / "x")] == ["x", "x/x"]


def test_files_come_in_the_order_of_their_beginning_whatever_the_digits(tmp_path):
    for stamp in (10_000_000_000, 999_999_999, 1_700_000_000):
        touch_run(tmp_path, stamp)
    touch_run(tmp_path, 999_999_999, rank=1)
    [run] = find_runs(tmp_path)
    assert run.ranks == (0, 1)
    stamps = [file.name.stamp for file in run.files_of(Kind.SUMMARY, 0)]
    assert stamps == [999_999_999, 1_700_000_000, 10_000_000_000]


def test_the_root_has_a_name():
    assert run_name("/", "/", nested=True) == "root"
    assert run_name("/x", "/", nested=True) == "root/x"


@pytest.mark.parametrize(
    ("last", "changed", "after", "until", "held"),
    [
        (1000, 2000, 2060, math.inf, True),  # the clocks of two machines differ by a minute
        (1000, 2000, 2061, math.inf, False),
        (1000, 2000, 0, 940, True),
        (1000, 2000, 0, 939, False),
        (1000, 939, 5000, math.inf, True),  # an archive has set its time: it is not trusted
        (1000, 940, 5000, math.inf, False),
        (3000, 2500, 5000, math.inf, True),
    ],
)
def test_times_of_files_say_which_have_no_records_of_a_time(
    tmp_path, last, changed, after, until, held
):
    mark = f".compacted-{last}-0001" if last > 1000 else ""
    path = tmp_path / f"events{mark}.out.events.summary.1000.0.host_MS"
    path.write_bytes(b"x")
    os.utime(path, (changed, changed))
    [file] = list_files(str(tmp_path))
    assert file.may_hold(after, until) is held


def test_a_file_that_is_gone_is_empty(tmp_path):
    touch_run(tmp_path)
    [file] = list_files(str(tmp_path))
    os.unlink(file.path)
    assert (file.nbytes, file.changed) == (0, -math.inf)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "an existing directory"),
        (lambda path: path.write_text("x"), "a directory; that of this file is"),
        (lambda path: path.mkdir(), "record files in it"),
    ],
)
def test_unusable_sources_are_reported_in_three_parts(tmp_path, make, says):
    source = tmp_path / "source"
    make(source)
    with pytest.raises(SourceError, match=says) as caught:
        find_runs(source)
    text = str(caught.value)
    assert str(source) in text
    assert "is invalid. Received:" in text
    assert "Expected:" in text


def test_links_in_a_circle_end_and_are_named(tmp_path, caplog):
    touch_run(tmp_path / "tree" / "run")
    for name, target in (("again", tmp_path / "tree"), ("here", "."), ("above", "/"), ("x", "x")):
        (tmp_path / "tree" / "run" / name).symlink_to(target)
    assert [run.name for run in find_runs(tmp_path / "tree")] == ["run"]
    left_out = sorted(message.split(" ")[1] for message in caplog.messages)
    assert left_out == [str(tmp_path / "tree/run" / name) for name in ("above", "again", "here")]
    assert all("a link back to" in message for message in caplog.messages)


@pytest.fixture
def links(tmp_path):
    """A tree with a run, a link to it, and links to other runs, in one of which links go on."""
    for name in ("other", "all/r1", "all/r2", "tree/r3"):
        touch_run(tmp_path / name)
    (tmp_path / "tree/latest").symlink_to("r3")
    (tmp_path / "tree/baseline").symlink_to(tmp_path / "all/r1")
    (tmp_path / "tree/candidates").symlink_to("../all")
    (tmp_path / "all/best").symlink_to("r2")
    (tmp_path / "all/other").symlink_to(tmp_path / "other")
    (tmp_path / "other/back").symlink_to(tmp_path / "all")
    (tmp_path / "tree/file").symlink_to(tmp_path / "all/r1/events.out.events.summary.1700000000.0")
    return tmp_path / "tree"


def test_links_out_of_the_tree_are_named(links, caplog):
    assert [run.name for run in find_runs(links)] == ["r3"]
    assert f"{links / 'baseline'} is left out: a link out of the tree, to" in caplog.text
    assert str(links.parent / "all/r1") in caplog.text
    assert f"{links / 'candidates'} is left out" in caplog.text
    assert len(caplog.messages) == 2
    (links.parent / "all/r1").rename(links.parent / "r1")
    left_out = {}
    find_runs(links, left_out)
    assert list(left_out) == [str(links / "candidates")]  # the other one leads to nothing now
    assert len(caplog.messages) == 2


def test_nothing_but_links_is_an_error_that_names_one(links):
    shutil.rmtree(links / "r3")
    shutil.rmtree(links.parent / "all" / "r1")
    expected = f"{links / 'candidates'} is left out: a link out of the tree, to"
    with pytest.raises(SourceError, match=re.escape(expected)):
        find_runs(links)


def test_very_many_links_are_counted(tmp_path, caplog):
    touch_run(tmp_path / "tree" / "run")
    for number in range(100):
        (tmp_path / "tree" / f"data_{number}").symlink_to("/usr")
    find_runs(tmp_path / "tree")
    assert len(caplog.messages) == 6
    assert caplog.messages[-1] == "rec_summary: 95 more directories are left out"


def test_links_are_followed_where_the_environment_says_so(links, caplog, monkeypatch):
    monkeypatch.setenv("REC_SUMMARY_FOLLOW_LINKS", "1")
    names = ["baseline", "candidates/other", "candidates/r1", "candidates/r2", "r3"]
    for source in (links, f"{links}/"):
        caplog.clear()
        assert [run.name for run in find_runs(source)] == names
        [loop] = caplog.messages
        assert "candidates/other/back is left out: a link back to" in loop


def test_a_directory_that_cannot_be_read_is_left_out_with_a_warning(tmp_path, caplog, monkeypatch):
    for name in ("a", "b"):
        touch_run(tmp_path / name)
    real, closed = os.scandir, "/a"

    def scandir(path):
        if str(path).endswith(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may read every directory
    assert [run.name for run in find_runs(tmp_path)] == ["b"]
    assert f"{tmp_path / 'a'} is left out: Permission denied" in caplog.text
    closed = ""
    with pytest.raises(SourceError, match="Permission denied"):
        find_runs(tmp_path)


def test_names_that_only_mindinsight_reads_make_a_run(tmp_path):
    for name in ("x.summary.7", "out.events.summary.5.host_lineage", "out.events.summary.6.host"):
        (tmp_path / name).write_bytes(b"")
    [run] = find_runs(tmp_path)
    found = [(file.name.stamp, file.name.kind) for file in run.files]
    assert found == [(5, Kind.LINEAGE), (6, Kind.SUMMARY), (7, Kind.SUMMARY)]


def test_the_files_of_thousands_of_ranks_are_not_searched_for_each_rank(tmp_path):
    class Counted(tuple):
        count = 0

        def __iter__(self):
            Counted.count += 1
            return super().__iter__()

    for rank in range(50):
        touch_run(tmp_path, rank=rank)
    [run] = find_runs(tmp_path)
    run = dataclasses.replace(run, files=Counted(run.files))
    assert [len(run.files_of(Kind.SUMMARY, rank)) for rank in run.ranks] == [1] * 50
    assert (run.files_of(Kind.LINEAGE, 0), run.files_of(Kind.SUMMARY, 50)) == ((), ())
    assert Counted.count == 1
