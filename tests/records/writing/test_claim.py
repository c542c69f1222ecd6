"""Names of new record files: unique, in order, private."""

import os
import subprocess
import sys

from rec_summary.records.files import make_directory
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import find_runs, list_files
from rec_summary.records.writing.claim import begin_segments
from tests.support.waiting import PATIENCE_SECS


def test_directory_and_files_are_private(tmp_path):
    make_directory(str(tmp_path / "deep" / "records"))
    assert (tmp_path / "deep" / "records").stat().st_mode & 0o777 == 0o700
    pair = begin_segments(str(tmp_path / "deep" / "records"), 0)
    for writer in pair.values():
        writer.close()
        assert os.stat(writer.path).st_mode & 0o777 == 0o600


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
    (tmp_path / "events.out.events.summary.9999999999.0.host_MS").write_bytes(b"")
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
    paths = b" ".join(
        process.communicate(timeout=PATIENCE_SECS)[0] for process in processes
    ).split()
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
