import os
import subprocess
import sys

import pytest

from rec_summary.errors import SourceError
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import begin_segments, find_runs, list_files, make_directory


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
    root = tmp_path / "x"
    touch_run(root)
    touch_run(root / "x")
    assert [run.name for run in find_runs(root)] == ["x", "x/x"]


def test_files_come_in_the_order_of_their_beginning_whatever_the_digits(tmp_path):
    for stamp in (10_000_000_000, 999_999_999, 1_700_000_000):
        touch_run(tmp_path, stamp)
    touch_run(tmp_path, 999_999_999, rank=1)
    [run] = find_runs(tmp_path)
    assert run.ranks == (0, 1)
    assert [file.name.stamp for file in run.of(Kind.SUMMARY, 0)] == [
        999_999_999,
        1_700_000_000,
        10_000_000_000,
    ]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "an existing directory"),
        (lambda path: path.write_text("x"), "a directory, not a file"),
        (lambda path: path.mkdir(), "record files in it"),
    ],
)
def test_unusable_sources_are_told_in_three_parts(tmp_path, make, says):
    source = tmp_path / "source"
    make(source)
    with pytest.raises(SourceError, match=says) as caught:
        find_runs(source)
    text = str(caught.value)
    assert str(source) in text
    assert "is invalid. Received:" in text
    assert "Expected:" in text


def test_links_in_a_circle_end(tmp_path):
    touch_run(tmp_path / "run")
    (tmp_path / "run" / "again").symlink_to(tmp_path)
    assert [run.name for run in find_runs(tmp_path)] == ["run"]


def test_directory_and_files_are_private(tmp_path):
    make_directory(str(tmp_path / "deep" / "records"))
    assert (tmp_path / "deep" / "records").stat().st_mode & 0o777 == 0o700
    pair = begin_segments(str(tmp_path / "deep" / "records"), 0)
    for writer in pair.values():
        writer.close()
        assert os.stat(writer.path).st_mode & 0o777 == 0o600


def test_an_existing_directory_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)
    make_directory(str(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "records").write_text("mine")
    with pytest.raises(NotADirectoryError):
        make_directory(str(tmp_path / "records"))
    assert (tmp_path / "records").read_text() == "mine"


def test_pairs_share_a_stamp_and_later_ones_sort_later_within_a_second(tmp_path):
    stamps = []
    for _ in range(4):
        pair = begin_segments(str(tmp_path), 0)
        for writer in pair.values():
            writer.close()
        stamps.append({f.name.stamp for f in list_files(str(tmp_path))} - set().union(*stamps))
    assert all(len(new) == 1 for new in stamps)
    assert [min(new) for new in stamps] == sorted(min(new) for new in stamps)


def test_a_clock_that_steps_back_does_not_reorder_files(tmp_path):
    touch_run(tmp_path, stamp=9_999_999_999)
    pair = begin_segments(str(tmp_path), 0)
    for writer in pair.values():
        writer.close()
    assert list_files(str(tmp_path))[-1].name.stamp == 10_000_000_000


def test_eight_processes_at_once_never_share_a_file(tmp_path):
    code = (
        "import sys; from rec_summary.records.writing.run_writer import RunWriter\n"
        "for _ in range(5): w = RunWriter(sys.argv[1]); w.close(); print(*w.paths)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    paths = b" ".join(process.communicate(timeout=60)[0] for process in processes).split()
    assert all(process.returncode == 0 for process in processes)
    assert len(paths) == len(set(paths)) == 8 * 5 * 2


def test_a_prefix_and_a_suffix_are_used_and_stamps_stay_unique_among_all(tmp_path):
    stamps = []
    for prefix, suffix in (("events", "_MS"), ("mine", "_v2"), ("events", "_MS")):
        pair = begin_segments(str(tmp_path), 0, prefix=prefix, suffix=suffix)
        for kind, writer in pair.items():
            writer.close()
            name = os.path.basename(writer.path)
            assert name.startswith(f"{prefix}.out.events.summary.")
            assert name.endswith(suffix if kind is Kind.SUMMARY else "_lineage")
        stamps.append({f.name.stamp for f in list_files(str(tmp_path))} - set().union(*stamps))
    assert [len(new) for new in stamps] == [1, 1, 1]
    [run] = find_runs(tmp_path)
    assert [file.name.prefix for file in run.of(Kind.SUMMARY, 0)] == ["events", "mine", "events"]


def test_a_directory_that_cannot_be_read_is_left_out_with_a_warning(tmp_path, caplog, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.events.summary.1.0.host_MS").write_bytes(b"")
    real, closed = os.scandir, "/a"

    def scandir(path):
        if str(path).endswith(closed):  # permissions mean nothing to root
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [run.name for run in find_runs(tmp_path)] == ["b"]
    assert f"{tmp_path / 'a'} is left out: Permission denied" in caplog.text
    closed = ""
    with pytest.raises(SourceError, match="Permission denied"):
        find_runs(tmp_path)
