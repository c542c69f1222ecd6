"""The commands on URLs, as users meet them: processes of their own, and a real S3 server."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from rec_summary.records.checkpoints.saved import SAVED, name_of
from tests.support import event_files
from tests.support.command import flat, run, start
from tests.support.record_dirs import event, scalar, tree, write_segment
from tests.support.s3 import SECRET
from tests.support.served_scores import record_served
from tests.support.waiting import PATIENCE_SECS, eventually

NO_SERVER = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}
# The command, with 0.2 seconds between two lists instead of 5.
HASTY = """
import sys
from rec_summary.cli import main
from rec_summary.series.discovery import run_poller

run_poller._LIST_SECS = 0.2
main(sys.argv[1:])
"""


@pytest.fixture
def s3(bucket: str):  # type: ignore[no-untyped-def]
    """Gives the file system of the test's bucket."""
    import s3fs

    return s3fs.S3FileSystem(use_listings_cache=False)


@pytest.fixture
def records(bucket: str, s3, tmp_path: Path) -> str:  # type: ignore[no-untyped-def]
    """Gives the URL of two runs."""
    for name in ("a", "b"):
        values = (event(step, scalar("loss", step)) for step in (1, 2, 3))
        write_segment(tmp_path / "local" / name, *values)
    s3.put(f"{tmp_path}/local/", f"{bucket}/records/", recursive=True)
    return f"s3://{bucket}/records"


def add(s3, url: str, path: Path) -> None:  # type: ignore[no-untyped-def]
    s3.put_file(str(path), f"{url.removeprefix('s3://')}/{path.parent.name}/{path.name}")


def scalars(directory: Path) -> list[tuple[int, str]]:
    return [(step, value.tag) for step, _, value in event_files.values(directory)]


@pytest.mark.parametrize("command", ["inspect", "lineage", "verify"])
def test_what_reads_records_says_the_same_of_a_url(
    records: str, tmp_path: Path, command: str
) -> None:
    here = run(command, tmp_path / "local", "--json")
    there = run(command, records, "--json")
    assert (there.returncode, there.stderr.replace(records, str(tmp_path / "local"))) == (
        0,
        here.stderr,
    )
    found = there.stdout.replace(records, str(tmp_path / "local"))
    assert json.loads(found) == json.loads(here.stdout)


def test_a_gate_at_a_url_finds_the_checkpoint(bucket: str, s3, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    local, url = tmp_path / "served", f"s3://{bucket}/served"
    record_served(local, -0.25, 20)
    (local / SAVED).mkdir()
    (local / SAVED / name_of(0, 15)).write_bytes(b"x")
    s3.put(f"{local}/", f"{bucket}/served/", recursive=True)
    here, there = (run("gate", source, "--json") for source in (local, url))
    assert (there.returncode, json.loads(there.stdout)) == (0, json.loads(here.stdout))
    assert json.loads(here.stdout)["checkpoint"] == f"{SAVED}/{name_of(0, 15)}"


def test_problems_name_the_url(records: str, s3, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    [file] = s3.glob(f"{records.removeprefix('s3://')}/a/*_MS")
    data = bytearray(s3.cat_file(file))
    data[-6] ^= 1
    s3.pipe_file(file, bytes(data))
    done = run("verify", records)
    assert done.returncode == 1
    assert f"damage: s3://{file}, offset " in done.stdout
    done = run("repair", records, f"{records}-repaired")
    assert done.returncode == 0, done.stderr
    assert f"s3://{file}, offset " in done.stdout
    assert f"to {records}-repaired; " in done.stdout
    assert run("verify", f"{records}-repaired").returncode == 0
    again = run("repair", records, f"{records}-repaired")
    assert again.returncode == 2
    assert "an empty place" in flat(again.stderr)


def test_an_export_to_a_url_is_what_a_local_one_is(records: str, s3, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    logs = "s3://clicks/some/logs"
    run("export", tmp_path / "local", tmp_path / "logs")
    here = {name: data for name, data in tree(tmp_path / "logs").items() if "tfevents" in name}
    for name in ("there", "again"):  # the second export puts the same files as wholes
        done = run("export", records, logs)
        assert done.returncode == 0, done.stderr
        assert f"Exported {records} to {logs}: 2 runs" in done.stdout
        s3.get("clicks/some/logs", str(tmp_path / name), recursive=True)
        assert tree(tmp_path / name) == here


def test_what_is_removed_at_the_destination_is_put_again(records: str, s3) -> None:  # type: ignore[no-untyped-def]
    run("export", records, "s3://clicks/logs")
    before = s3.find("clicks/logs")
    s3.rm_file(before[0])
    run("export", records, "s3://clicks/logs")
    assert s3.find("clicks/logs") == before


def test_tables_go_to_a_url(records: str, s3) -> None:  # type: ignore[no-untyped-def]
    done = run("export", records, "s3://clicks/tables", "--format", "csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["destination"] == "s3://clicks/tables"
    assert s3.cat_file("clicks/tables/scalars.csv").count(b"\n") == 7


def test_event_files_of_others_are_never_touched(records: str, s3) -> None:  # type: ignore[no-untyped-def]
    s3.pipe_file("clicks/logs/a/events.out.tfevents.1.theirs", b"theirs")
    done = run("export", records, "s3://clicks/logs")
    assert done.returncode == 1
    assert "an event file of another writer" in flat(done.stderr)
    assert s3.find("clicks/logs") == ["clicks/logs/a/events.out.tfevents.1.theirs"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_a_url(records: str, s3, tmp_path: Path, number: int) -> None:  # type: ignore[no-untyped-def]
    logs = tmp_path / "logs"
    process = start("export", records, logs, "--follow", program=("-c", HASTY))
    eventually(lambda: list(logs.glob("*/*tfevents*")))
    added, _ = write_segment(tmp_path / "local" / "c", event(9, scalar("late", 1.0)))
    add(s3, records, added)
    eventually(lambda: list(logs.glob("c/*tfevents*")))
    process.send_signal(number)
    _, error = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0, error
    assert (9, "late") in scalars(logs / "c")


def test_what_is_awaited_at_a_url_is_taken_in(bucket: str, s3, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = start(
        *("export", f"s3://{bucket}/not yet", tmp_path / "logs", "--follow"), program=("-c", HASTY)
    )
    assert process.stderr is not None
    assert "Following s3://clicks/not yet" in process.stderr.readline()
    added, _ = write_segment(tmp_path / "local" / "c", event(9, scalar("late", 1.0)))
    add(s3, f"s3://{bucket}/not yet", added)
    eventually(lambda: list((tmp_path / "logs" / "c").glob("*tfevents*")))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("inspect", "s3://clicks/nothing"), 2, "there is no file at this URL or below it"),
        (("tail", "nothing://x"), 2, "a URL that fsspec can open"),
        (("inspect", "nothing://x"), 2, "a URL that fsspec can open"),
        (("inspect", "file://x"), 2, "file:// and an absolute path"),
        (("export", "{records}", "{records}/logs"), 2, "neither in {records}/ nor around it"),
        (("export", "{records}", "s3://no-such-bucket/x"), 1, "the destination is invalid"),
        (("inspect", "s3://no-such-bucket/x"), 2, "the source of records is invalid"),
    ],
)
def test_mistakes_name_the_url(
    records: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = run(*(each.format(records=records) for each in arguments))
    assert done.returncode == code, done.stderr
    assert words.format(records=records) in flat(done.stderr)
    assert " is invalid. Received: " in flat(done.stderr)
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_reported_without_credentials(records: str) -> None:
    environment = {**os.environ, **NO_SERVER}
    done = run("inspect", records, "--debug", env=environment)
    assert done.returncode == 1
    assert f"the source of records is invalid. Received: {records}" in flat(done.stderr)
    assert SECRET not in done.stdout + done.stderr
    assert "AKIA0123456789ABCDEF" not in done.stdout + done.stderr


def test_the_last_values_at_a_url(records: str) -> None:
    done = run("tail", records, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "loss" in done.stdout


def test_following_a_server_that_is_not_there_ends(records: str) -> None:
    environment = {**os.environ, **NO_SERVER}
    done = run("tail", records, env=environment)
    assert done.returncode == 1
    assert "a place that can be read from here" in flat(done.stderr)


@pytest.mark.parametrize("command", ["inspect", "verify", "tail", "lineage"])
@pytest.mark.parametrize("flags", [(), ("-v",), ("--debug",)])
def test_keys_in_a_url_are_never_printed(bucket: str, command: str, flags: tuple[str, ...]) -> None:
    done = run(command, f"s3://AKIAKEY:{SECRET}/x@{bucket}/records", *flags)
    assert done.returncode in (1, 2)
    assert SECRET not in done.stdout + done.stderr
    assert "AKIAKEY" not in done.stdout + done.stderr
    assert f"s3://…@{bucket}/records" in flat(done.stderr)
    assert "a URL without keys" in flat(done.stderr)


def test_nothing_is_kept_on_this_machine(records: str, tmp_path: Path) -> None:
    homes = ("HOME", "XDG_CACHE_HOME", "TMPDIR")
    for name in homes:
        (tmp_path / name).mkdir()
    environment = {**os.environ, **{name: str(tmp_path / name) for name in homes}}
    for command in (("inspect", records), ("export", records, "s3://clicks/logs")):
        assert run(*command, env=environment).returncode == 0
    left = [path for name in homes for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert [path for path in left if "rec_summary" in str(path)] == []
