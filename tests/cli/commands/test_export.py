"""`rec-summary export`, as users meet it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from rec_summary._pb.lineage_pb2 import EvaluationLineage
from rec_summary.cli.commands.export import export
from rec_summary.records.format.framing import frame
from rec_summary.tensorboard.event_files.logdir import LogDir
from tests.support import event_files
from tests.support.command import PROGRAM, end, environment, flat, python, run, start
from tests.support.event_files import shown
from tests.support.landscape_cases import landscape_value
from tests.support.record_dirs import (
    event,
    histo,
    lineage,
    picture,
    scalar,
    summary_name,
    train,
    tree,
    write_segment,
)
from tests.support.waiting import eventually


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_segment(
        tmp_path / "records" / "run", *(event(step, scalar("loss", step)) for step in (1, 2, 3))
    )
    return tmp_path / "records"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_an_export_says_what_it_did(source: Path, logdir: Path) -> None:
    done = run("export", source, logdir)
    assert done.returncode == 0
    first, exported, see, page = done.stdout.splitlines()
    assert first.startswith(f"Exported {source} to {logdir}: 1 run, 5 records in 2 files, ")
    assert exported == "  exported: 3 scalar"
    assert see == f"To see it: tensorboard --logdir {logdir}"
    assert page.startswith("  http://localhost:6006/?pinnedCards=")
    assert re.fullmatch(r"exporting run \(0 bytes of \d+ bytes read\)\n", done.stderr)


def test_the_name_of_a_table_file_is_no_directory(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for options in ([], ["--format", "csv"]):
        done = CliRunner().invoke(export, [str(source), str(tmp_path / "loss.csv"), *options])
        assert done.exit_code == 2
        assert "DEST is invalid. Received:" in flat(done.output)
        assert "loss.csv" in done.output
        assert "a file for each table" in flat(done.output)
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
    dataset = [str(source), str(tmp_path / "loss.parquet"), "--format", "parquet"]
    assert CliRunner().invoke(export, dataset).exit_code == 0


def test_notes_are_printed_and_a_page_without_scalars_is_not(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *(event(step, histo("w", [step])) for step in (2, 1)))
    which = [str(tmp_path / "run"), str(tmp_path / "logs"), "--tags", "w"]
    done = CliRunner().invoke(export, which)
    assert "  note: run run: steps go back (first from 2 to 1)" in done.output
    assert "To see it" not in done.output


def test_only_chosen_tags_are_at_the_top_of_the_page(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("eval/auc", 1), scalar("loss", 1)))
    which = [str(tmp_path / "run"), str(tmp_path / "logs"), "--tags", "auc"]
    page = unquote(CliRunner().invoke(export, which).output.partition("To see it")[2])
    assert ("eval/auc" in page, "loss" in page) == (True, False)


def test_json_says_what_was_done(source: Path, logdir: Path) -> None:
    done = CliRunner().invoke(export, [str(source), str(logdir), "--json"])
    found = json.loads(done.stdout)
    assert (found["source"], found["destination"]) == (str(source), str(logdir))
    assert (found["exported"], found["problem_count"]) == ({"scalar_value": 3}, 0)


@pytest.mark.parametrize(
    ("form", "counter"),
    [("tensorboard", "exported"), ("tensorboard", "records"), ("csv", "left_out")],
)
def test_kinds_are_sorted_in_json(tmp_path: Path, form: str, counter: str) -> None:
    values = landscape_value(), picture("images"), scalar("loss", 1), histo("w", [1.0])
    write_segment(tmp_path / "run", event(1, *values), lineage(train_lineage=train()))
    which = [str(tmp_path / "run"), str(tmp_path / "to"), "--json", "--format", form]
    kinds = list(json.loads(run("export", *which).stdout)[counter])
    assert len(kinds) > 1
    assert kinds == sorted(kinds)


def test_a_replaced_run_asks_for_a_restart_of_tensorboard(source: Path, logdir: Path) -> None:
    run("export", source, logdir)
    assert "1 run replaced: restart a running TensorBoard" in (
        run("export", source, logdir, "--since", "99").stdout
    )


def test_quiet_prints_problems_only(source: Path, logdir: Path) -> None:
    done = run("export", "-q", source, logdir)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (source / "run" / summary_name()).write_bytes(b"")
    done = run("export", "-q", source, logdir)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("1 problem:\n  ")
    assert "  no new records\n" in run("export", source, logdir).stdout


def test_at_most_twenty_problems_are_printed(source: Path, logdir: Path) -> None:
    broken = bytearray(frame(event(1, scalar("loss", 1)).SerializeToString()))
    broken[-1] ^= 1
    (source / "run" / summary_name()).write_bytes(bytes(broken) * 50)
    done = run("export", source, logdir)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines[1] == "50 problems:"
    assert len(lines) == 1 + 1 + 20 + 1
    assert f"offset {len(broken) * 19}: the data's checksum is wrong; skipped" in lines[-2]
    assert lines[-1] == "  and 30 more (-v lists them)"


def test_problems_cannot_play_tricks_on_a_terminal(source: Path, logdir: Path) -> None:
    (source / "\x1b[31mred\n").mkdir()
    (source / "\x1b[31mred\n" / summary_name()).write_bytes(b"")
    done = run("export", source, logdir)
    assert "\x1b" not in done.stderr + done.stdout
    assert r"\x1b[31mred\n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing", "logs"], "an existing directory of MindSpore summary records"),
        (["records/run/file", "logs"], "a directory; that of this file is 'records/run'"),
        (["records", "records/logs"], "two directories of which neither is in the other"),
        (["records/run", "records"], "two directories of which neither is in the other"),
        (["records", "records"], "two directories of which neither is in the other"),
        (["records", "logs", "--tags", "("], "a regular expression that compiles"),
        (["records", "logs", "--ranks", "5"], "ranks that a run has; there are: 0"),
        (["records", "logs", "--runs", "x*"], "a pattern that matches a run; there are: run"),
    ],
)
def test_mistakes_in_arguments_exit_with_2(
    source: Path, arguments: list[str], expected: str
) -> None:
    (source / "run" / "file").write_text("x")
    before = tree(source.parent)
    done = run("export", *arguments, cwd=source.parent, env=environment())
    assert done.returncode == 2
    assert " is invalid. Received: " in flat(done.stderr)
    assert f"Expected: {expected}" in flat(done.stderr)
    assert "Traceback" not in done.stderr
    assert tree(source.parent) == before


@pytest.mark.parametrize("arguments", [["export"], ["export", "x"], ["export", "--no"], ["no"]])
def test_what_click_does_not_understand_exits_with_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Error: " in done.stderr


def test_a_source_without_records_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in (["export", tmp_path / "logs"], ["repair", tmp_path / "copy"], ["inspect"]):
        done = run(command[0], tmp_path / "empty", *command[1:])
        assert done.returncode == 2
        assert "a directory with record files in it or below it" in flat(done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_source_that_cannot_be_read_exits_with_1(source: Path, logdir: Path) -> None:
    for path in (source / "run").iterdir():
        path.write_bytes(b"not a record file")
    done = run("export", source, logdir)
    assert done.returncode == 1
    assert "files without a readable record" in flat(done.stderr)


@pytest.mark.parametrize("place", ["/proc/self/rec_summary", "/dev/null"])
def test_a_log_directory_that_cannot_be_written_to_exits_with_1(source: Path, place: str) -> None:
    done = run("export", source, place)
    assert done.returncode == 1
    assert f"the log directory is invalid. Received: {place}" in flat(done.stderr)
    assert "Expected: a directory that can be written to" in flat(done.stderr)


@pytest.mark.parametrize("more", [(), ("--follow",)])
def test_a_log_directory_that_another_export_writes_to_exits_with_1(
    source: Path, logdir: Path, more: tuple[str, ...]
) -> None:
    with LogDir(str(logdir)) as theirs:
        done = run("export", source, logdir, *more)
        assert done.returncode == 1
        assert f"which another export writes to: {theirs.holder}" in flat(done.stderr)
        assert "another directory, or wait until that export has ended" in flat(done.stderr)
    assert run("export", source, logdir).returncode == 0


def test_debug_shows_where_an_error_arose(source: Path) -> None:
    done = run("export", "--debug", source, "/dev/null")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_tags_and_runs_are_passed_on(source: Path, logdir: Path) -> None:
    done = run("export", source, logdir, "--tags", "^nothing", "--runs", "r*")
    assert done.returncode == 2
    assert "a pattern that is found in a tag; there are" in flat(done.stderr)
    assert not logdir.exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_an_interruption_ends_it_at_once_without_a_word_too_much(
    tmp_path: Path, logdir: Path, number: int, code: int
) -> None:
    # Long enough to be met in the middle, quick to write.
    some = b"".join(frame(event(s, scalar("x", s)).SerializeToString()) for s in range(10_000))
    path = tmp_path / "records" / "run" / summary_name()
    path.parent.mkdir(parents=True)
    path.write_bytes(some * 200)
    process = subprocess.Popen(
        [*PROGRAM, "export", str(tmp_path / "records"), str(logdir)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()  # the line that says that the run has begun
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(60) == code
    assert "Traceback" not in rest
    assert ("Interrupted." in rest) == (number == signal.SIGINT)


def test_the_export_works_where_mindspore_cannot_be_imported(source: Path, logdir: Path) -> None:
    code = (
        "import sys; sys.modules['mindspore'] = None; from rec_summary.cli import main; "
        "sys.exit(main(['export', *sys.argv[1:]]))"
    )
    done = python(code, source, logdir)
    assert (done.returncode, list(logdir.rglob("*tfevents*")) != []) == (0, True), done.stderr


def test_progress_is_a_bar_on_a_terminal(source: Path, logdir: Path) -> None:
    code = (
        "import pty, os, sys; status = pty.spawn(sys.argv[1:]); "
        "sys.exit(os.waitstatus_to_exitcode(status))"
    )
    done = python(code, *PROGRAM, "export", source, logdir)
    assert done.returncode == 0
    assert "━" in done.stdout
    assert "exporting run" not in done.stdout


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_are_exported(three_runs: Path, tmp_path: Path, form: str) -> None:
    done = run("export", three_runs, tmp_path / "out", "--format", form)
    assert done.returncode == 0
    suffix = "" if form == "parquet" else f".{form}"
    assert f"{tmp_path / 'out' / 'scalars'}{suffix}: 9 rows" in done.stdout
    assert "without a table" not in done.stdout
    assert "To see it" not in done.stdout
    assert (tmp_path / "out" / f"lineage.{form}").stat().st_size > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "csv", "--follow"), "--follow cannot be combined with --format csv"),
        (
            ("--format", "csv", "--max-points", "20"),
            "--max-points cannot be combined with --format",
        ),
        (("--projector", "x"), "the option --projector, which is removed, is invalid. Received"),
        (
            ("--projector", "x", "--checkpoint", "y"),
            "Expected: rec-summary view SRC: its Projector",
        ),
        (("--labels", "x"), "the option --labels, which is removed, is invalid. Received: 'x'."),
        (("--plugins", "scalar"), "Received: 'scalar'. Expected: one or more of scalars"),
        (("--max-points", "3"), "an int of at least 10"),
        (("--since", "5", "--until", "4"), "a step not after `until`"),
        (("--jobs", "0"), "0 is not in the range x>=1"),
        (("--max-points", "20", "--follow"), "a series that still grows cannot be downsampled"),
    ],
)
def test_options_that_do_not_go_together_exit_with_2(
    three_runs: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    pytest.importorskip("pandas")
    done = run("export", three_runs, tmp_path / "out", *options)
    assert done.returncode == 2, done.stderr
    assert words in flat(done.stderr)
    assert not (tmp_path / "out").exists()


def test_selection_is_passed_on(three_runs: Path, tmp_path: Path) -> None:
    options = ("--plugins", "scalars,text", "--since", "2", "--jobs", "2")
    done = run("export", three_runs, tmp_path / "logs", *options)
    assert done.returncode == 0, done.stderr
    for index in range(3):
        values = event_files.values(tmp_path / "logs" / f"run_{index}")
        assert {(step, value.tag) for step, _, value in values} == {
            *((2, "loss/auto"), (3, "loss/auto"), (3, "lineage")),
        }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_well_when_it_is_asked_to(
    three_runs: Path, tmp_path: Path, number: int
) -> None:
    process = start("export", three_runs, tmp_path / "logs", "--follow")
    assert process.stderr is not None
    assert "Following" in process.stderr.readline()
    eventually(lambda: list((tmp_path / "logs").rglob("*tfevents*")))
    code, out, error = end(process, number)
    assert (code, error) == (0, "")
    assert "Exported" in out
    assert run("export", three_runs, tmp_path / "logs").returncode == 0
    assert run("export", three_runs, tmp_path / "at once").returncode == 0
    assert shown(tmp_path / "logs") == shown(tmp_path / "at once")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "jsonl", "--follow"), "--follow cannot be combined with --format jsonl"),
        (("--format", "csv", "--plugins", "scalars"), "--plugins cannot be combined with"),
        (("--format", "parquet", "--tensors", "npy"), "--tensors cannot be combined with"),
        (("--engine", "dask", "--follow"), "--engine cannot be combined with --follow"),
        (
            ("--format", "parquet", "--follow"),
            "--follow is invalid. Received: '--format parquet --follow'. Expected: "
            "--format parquet alone: run it again",
        ),
    ],
)
def test_options_that_exclude_each_other(
    source: Path, logdir: Path, options: tuple[str, ...], words: str
) -> None:
    done = CliRunner().invoke(export, [str(source), str(logdir), *options])
    assert done.exit_code == 2
    assert words in flat(done.output)


def test_what_follows_is_not_written_to_a_url(source: Path) -> None:
    done = CliRunner().invoke(export, [str(source), "memory://bucket/out", "--follow"])
    assert done.exit_code == 2
    assert "needs a local DEST" in flat(done.output)


@pytest.mark.parametrize("form", ["tensorboard", "jsonl"])
def test_tags_that_the_chosen_ranks_do_not_have(tmp_path: Path, form: str) -> None:
    write_segment(tmp_path / "run", event(1, scalar("loss", 1), scalar("auc", 1)))
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)), rank=1)
    which = ("--format", form, "--ranks", "1", "--tags")
    done = run("export", tmp_path / "run", tmp_path / "out", *which, "auc")
    assert done.returncode == 2
    words = "found in a tag of ranks 1; there are: loss. Ranks with such a tag: 0."
    assert words in flat(done.stderr)
    assert not (tmp_path / "out").exists()
    assert run("export", tmp_path / "run", tmp_path / "out", *which, "loss").returncode == 0


def test_following_what_no_chosen_rank_has_says_so_and_waits(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("auc", 1)))
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)), rank=1)
    which = ("--ranks", "1", "--tags", "auc", "--follow")
    process = start("export", tmp_path / "run", tmp_path / "out", *which)
    assert process.stderr is not None
    assert "Following" in process.stderr.readline()
    line = process.stderr.readline()
    assert "a tag of ranks 1; there are: loss. Ranks with such a tag: 0. Waiting for it." in line
    assert end(process, signal.SIGINT)[0] == 0


def test_a_run_of_one_rank_is_in_the_event_files_whatever_ranks_are_chosen(tmp_path: Path) -> None:
    write_segment(tmp_path / "source" / "one", event(1, scalar("grad", 1)))
    for rank in (0, 1):
        write_segment(tmp_path / "source" / "two", event(1, scalar("loss", 1)), rank=rank)
    which = ("--ranks", "1", "--tags", "grad")
    done = run("export", tmp_path / "source", tmp_path / "out", *which)
    assert done.returncode == 0, done.stderr
    assert "exported: 1 scalar" in done.stdout


def test_metrics_of_evaluations_are_tags(tmp_path: Path) -> None:
    evaluation = EvaluationLineage(metric='{"auc": 0.7}')
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)))
    write_segment(tmp_path / "run", lineage(evaluation_lineage=evaluation))
    done = run("export", tmp_path / "run", tmp_path / "out", "--tags", "auc")
    assert done.returncode == 0, done.stderr
    assert "1 evaluation lineage" in done.stdout


def test_a_selection_of_tables_is_passed_on(tmp_path: Path) -> None:
    for rank in (0, 1):
        steps = (event(step, scalar("loss", step), scalar("auc", step)) for step in (1, 2, 3))
        write_segment(tmp_path / "run", *steps, rank=rank)
    which = ("--tags", "loss", "--ranks", "1", "--since", "2", "--until", "2")
    done = run("export", tmp_path / "run", tmp_path / "out", "--format", "jsonl", *which)
    assert done.returncode == 0, done.stderr
    assert "scalars.jsonl: 1 row\n" in done.stdout


def test_the_page_in_a_file(source: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("export", source, "--format", "html", "-o", page)
    assert done.returncode == 0, done.stderr
    size = re.fullmatch(
        rf"Wrote {re.escape(str(page))}: 1 run, (.+)\. Open it in a browser\.\n", done.stdout
    )
    assert size
    assert page.read_text().startswith("<!DOCTYPE html>")
    as_argument = run("export", source, page, "--format", "html", "--json")
    printed = json.loads(as_argument.stdout)
    assert printed["path"] == str(page)
    assert printed["runs"] == ["run"]
    assert printed["bytes_written"] == page.stat().st_size
    assert not as_argument.stderr


@pytest.mark.parametrize(
    "option",
    [
        *(["--follow"], ["--tags", "loss"], ["--plugins", "scalars"], ["--max-points", "9"]),
        *(["--tensors", "npy"], ["--ranks", "0"], ["--since", "1"], ["--until", "9"]),
        *(["--jobs", "2"], ["--engine", "dask://h:1"]),
    ],
)
def test_a_page_takes_no_options_of_other_forms(
    source: Path, tmp_path: Path, option: list[str]
) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(export, [str(source), str(page), "--format", "html", *option])
    assert done.exit_code == 2
    assert f"{option[0]} cannot be combined with --format html" in flat(done.output)
    assert not page.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "html"], "one place to write to: export SRC DEST, or export SRC -o DEST"),
        (["a.html", "-o", "b.html", "--format", "html"], "Received: ['b.html', 'a.html']"),
        (["-o", "page", "--format", "html"], "a file whose name ends in .html"),
        (["-o", "s3://b/page.html", "--format", "html"], "a local file with --format html"),
        (["-o", "page.html"], "with --format html, a file whose name ends in .html"),
        (["page.html", "--format", "html", "--runs", "x*"], "a pattern that matches a run"),
    ],
)
def test_where_a_page_goes(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(export, [str(source), *arguments])
    assert done.exit_code == 2
    assert message in flat(done.output)
    assert "is invalid. Received: " in flat(done.output)
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


def test_the_destination_is_an_argument_or_an_option(source: Path, logdir: Path) -> None:
    assert run("export", source, "-o", logdir).returncode == 0
    assert shown(logdir / "run")
