"""Links, pipes, bombs of nothing: what lies in a directory need not be what it is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rec_summary
from rec_summary.errors import DestinationError
from rec_summary.records.files import temporary_name
from rec_summary.records.format.names import parse_name
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.repair import repair
from rec_summary.records.reading.runs import RecordFile, find_runs
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.tables.formats import export_tables
from rec_summary.tensorboard.embedding_tables import newest_checkpoint
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.logdir import LOCK_NAME, LogDir
from tests.support.crafted import good, run, write
from tests.support.event_files import scalars
from tests.support.record_dirs import summary_name

LINK = "a link, which is not followed"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source with a sound run, and in it a link to a record file elsewhere."""
    write(tmp_path / "private", good(tag="secret"))
    write(tmp_path / "records" / "run", good())
    place = tmp_path / "records" / "run" / summary_name(1_800_000_000)
    place.symlink_to(tmp_path / "private" / summary_name())
    return tmp_path / "records"


def test_a_linked_record_file_is_reported_and_not_read(source: Path, tmp_path: Path) -> None:
    report = export_tensorboard(source, tmp_path / "logs")
    [problem] = report.problems
    assert LINK in problem.text
    assert report.exported == {"scalar_value": 1}
    assert not scalars(tmp_path / "logs" / "run", "secret")
    assert b"secret" not in b"".join(
        path.read_bytes() for path in (tmp_path / "logs").rglob("*") if path.is_file()
    )


def test_a_linked_record_file_is_not_loaded_copied_or_tabulated(
    source: Path, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=LINK):
        assert set(rec_summary.load(source).scalars()["tag"]) == {"loss"}
    report = repair(source, tmp_path / "repaired")
    [(path, why)] = report.unreadable
    assert "1800000000" in path
    assert LINK in why
    assert len(report.files) == 1
    tables = export_tables(source, tmp_path / "tables", form="csv")
    assert "secret" not in (tmp_path / "tables" / "scalars.csv").read_text()
    assert tables.problem_count == 1


def test_the_commands_report_a_link(source: Path) -> None:
    assert LINK in run("verify", source).stdout
    assert LINK in run("inspect", source).stderr
    done = run("inspect", source)
    assert "secret" not in done.stdout
    assert done.returncode == 0


def test_a_source_may_be_a_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(source)
    assert [each.name for each in find_runs(tmp_path / "latest")] == ["run"]


def test_linked_directories_are_no_runs(source: Path, tmp_path: Path) -> None:
    (source / "elsewhere").symlink_to(tmp_path / "private")
    (source / "loop").symlink_to(source)
    assert [each.name for each in find_runs(source)] == ["run"]
    assert [each.name for each in RunPoller(str(source)).poll()] == ["run"]
    with pytest.warns(UserWarning, match="2 problems"):
        loaded = rec_summary.load(source)
    assert loaded.runs == ("run",)
    assert {problem.path for problem in loaded.problems} == {
        str(source / name) for name in ("elsewhere", "loop")
    }
    assert "secret" not in run("inspect", source).stdout


def test_pipes_and_directories_named_like_record_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "records" / "run", good())
    os.mkfifo(tmp_path / "records" / "run" / summary_name(5))
    (tmp_path / "records" / "run" / summary_name(6)).mkdir()
    (tmp_path / "records" / "run" / summary_name(7)).symlink_to("/dev/zero")
    for command in ("verify", "inspect", "lineage"):
        assert run(command, tmp_path / "records").returncode == 0


@pytest.mark.parametrize("kind", ["pipe", "directory", "link", "device"])
def test_a_reader_neither_follows_nor_waits(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "records"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(write(tmp_path / "private", good()))
    else:
        path = Path("/dev/zero")
    with pytest.raises(OSError, match=r"link|regular"):
        RecordReader(path)


def test_a_link_that_comes_after_the_listing_has_no_size_of_its_target(tmp_path: Path) -> None:
    target = write(tmp_path / "private", *[good()] * 100)
    name = parse_name(summary_name())
    assert name is not None
    (tmp_path / "link").symlink_to(target)
    assert RecordFile(str(tmp_path / "link"), name).nbytes < 1000 < target.stat().st_size


def test_directories_without_end_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "records" / "run", good())
    directory = os.open(tmp_path / "records", os.O_RDONLY)
    for _ in range(70):
        os.mkdir("d", dir_fd=directory)
        below = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    assert [each.name for each in find_runs(tmp_path / "records")] == ["run"]
    assert [each.name for each in RunPoller(str(tmp_path / "records")).poll()] == ["run"]
    done = run("export", tmp_path / "records", tmp_path / "logs")
    assert done.returncode == 0
    assert "nested more than 64 directories deep" in done.stderr
    assert "Traceback" not in done.stderr


def test_tables_are_not_written_through_links(tmp_path: Path) -> None:
    write(tmp_path / "records" / "run", good())
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "tables").mkdir()
    for name in (temporary_name("scalars.csv"), "scalars.csv"):
        (tmp_path / "tables" / name).symlink_to(victim)
    export_tables(tmp_path / "records", tmp_path / "tables", form="csv")
    assert victim.read_text() == "precious"
    assert "loss" in (tmp_path / "tables" / "scalars.csv").read_text()
    assert not (tmp_path / "tables" / "scalars.csv").is_symlink()


def test_a_checkpoint_folder_that_is_a_link_is_not_looked_into(tmp_path: Path) -> None:
    from tests.support.checkpoint_bytes import DATA

    write(tmp_path / "records" / "run", good())
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.ckpt").write_bytes(DATA)
    (tmp_path / "records" / "run" / "ckpt_dir").symlink_to(tmp_path / "private")
    [run] = find_runs(tmp_path / "records")
    assert newest_checkpoint(run) is None


@pytest.mark.parametrize("lock", [LOCK_NAME])
def test_a_lock_with_another_name_is_not_emptied(tmp_path: Path, lock: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "logs").mkdir()
    os.link(victim, tmp_path / "logs" / lock)
    with (
        pytest.raises(DestinationError, match="empty file with one name"),
        LogDir(str(tmp_path / "logs")),
    ):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_a_lock_among_records_is_not_emptied(tmp_path: Path, make: object) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    make(victim, tmp_path / "run" / ".rec_summary.lock")  # type: ignore[operator]
    RunWriter(tmp_path / "run").close()
    assert victim.read_text() == "precious"


def test_names_that_differ_by_the_ending_of_a_temporary_file_are_both_repaired(
    tmp_path: Path,
) -> None:
    run_directory = tmp_path / "records" / "run"
    write(run_directory, good(1))
    write(run_directory, good(2), name=summary_name() + ".tmp")
    os.chmod(run_directory / summary_name(), 0o4755)
    report = repair(tmp_path / "records", tmp_path / "repaired")
    assert sorted(path.name for path in (tmp_path / "repaired" / "run").iterdir()) == sorted(
        os.path.basename(file.source) for file in report.files
    )
    assert (tmp_path / "repaired" / "run" / summary_name()).stat().st_mode & 0o7777 == 0o755
