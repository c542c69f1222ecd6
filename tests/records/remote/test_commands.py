"""The commands on URLs, as users meet them: processes of their own, and a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rec_summary.records.remote.lease import LOCK_NAME
from tests.records.remote.conftest import SECRET
from tests.support import event_files
from tests.support.command import flat, run, start
from tests.support.record_dirs import event, scalar, tree, write_segment

TIMEOUT = 60


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


def eventually(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def scalars(directory: Path) -> list[tuple[int, str]]:
    return [(step, value.tag) for step, _, value in event_files.values(directory)]


@pytest.mark.parametrize("command", ["inspect", "lineage", "verify"])
def test_what_reads_records_says_the_same_of_a_url(
    records: str, tmp_path: Path, command: str
) -> None:
    here = run(command, tmp_path / "local", "--json")
    there = run(command, records, "--json")
    assert (there.returncode, there.stderr) == (0, "fetching " + there.stderr[9:])
    found = there.stdout.replace(records, str(tmp_path / "local"))
    assert json.loads(found) == json.loads(here.stdout)
    assert str(tmp_path / "cache") not in there.stdout + there.stderr


def test_a_single_record_file_is_verified(records: str, s3) -> None:  # type: ignore[no-untyped-def]
    [file] = s3.glob(f"{records.removeprefix('s3://')}/a/*_MS")
    done = run("verify", f"s3://{file}", "-v")
    assert done.returncode == 0
    assert "1 file, 4 sound records" in done.stdout
    assert "bytes fetched" in done.stderr


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
    assert again.returncode == 1
    assert "an empty place" in flat(again.stderr)


def test_an_export_to_a_url_adds_what_is_new(records: str, s3, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    logs = "s3://clicks/some/logs"
    done = run("export", records, logs)
    assert done.returncode == 0, done.stderr
    assert f"Exported {records} to {logs}: 2 runs" in done.stdout
    run("export", tmp_path / "local", tmp_path / "logs")
    s3.get("clicks/some/logs", str(tmp_path / "there"), recursive=True)
    here = {name: data for name, data in tree(tmp_path / "logs").items() if "tfevents" in name}
    assert tree(tmp_path / "there") == here
    assert "nothing new since the last export" in run("export", records, logs).stdout
    # Another machine, which has no copy, puts the same.
    done = run("export", records, logs, "--cache", tmp_path / "another")
    assert done.returncode == 0, done.stderr
    s3.get("clicks/some/logs", str(tmp_path / "again"), recursive=True)
    assert tree(tmp_path / "again") == here


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


def test_two_exports_do_not_write_to_one_place(records: str, s3) -> None:  # type: ignore[no-untyped-def]
    logs = "s3://clicks/logs"
    lock = f"clicks/logs/{LOCK_NAME}"
    about = {"id": "x", "host": "elsewhere", "pid": 7}
    s3.pipe_file(lock, json.dumps({**about, "time": time.time() - 30}).encode())
    done = run("export", records, logs)
    assert done.returncode == 1
    assert "to which another export writes (host elsewhere, process 7)" in flat(done.stderr)
    assert s3.find("clicks/logs") == [lock]
    s3.pipe_file(lock, json.dumps({**about, "time": time.time() - 3000}).encode())
    assert run("export", records, logs).returncode == 0  # its holder is long dead
    assert lock not in s3.find("clicks/logs")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_from_a_url_to_a_url(records: str, s3, tmp_path: Path, number: int) -> None:  # type: ignore[no-untyped-def]
    process = start("export", records, "s3://clicks/logs", "--follow")
    eventually(lambda: s3.glob("clicks/logs/*/*tfevents*"))
    added, _ = write_segment(tmp_path / "local" / "c", event(9, scalar("late", 1.0)))
    add(s3, records, added)
    eventually(lambda: s3.glob("clicks/logs/c/*tfevents*"))
    process.send_signal(number)
    _, error = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, error
    s3.get("clicks/logs", str(tmp_path / "there"), recursive=True)
    assert (9, "late") in scalars(tmp_path / "there" / "c")
    assert f"clicks/logs/{LOCK_NAME}" not in s3.find("clicks/logs")


def test_what_is_awaited_at_a_url_is_taken_in(bucket: str, s3, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = start("export", f"s3://{bucket}/not yet", tmp_path / "logs", "--follow")
    assert process.stderr is not None
    assert "Following s3://clicks/not yet" in process.stderr.readline()
    added, _ = write_segment(tmp_path / "local" / "c", event(9, scalar("late", 1.0)))
    add(s3, f"s3://{bucket}/not yet", added)
    eventually(lambda: list((tmp_path / "logs" / "c").glob("*tfevents*")))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("inspect", "s3://clicks/nothing"), 2, "a URL of record files, or of a tree of them"),
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


def test_a_server_that_is_not_there_is_told_without_credentials(records: str) -> None:
    environment = {**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    done = run("inspect", records, "--debug", env=environment)
    assert done.returncode == 1
    assert f"the source of records is invalid. Received: {records}" in flat(done.stderr)
    assert SECRET not in done.stdout + done.stderr
    assert "AKIA0123456789ABCDEF" not in done.stdout + done.stderr


def test_credentials_are_kept_nowhere(records: str, cache: Path) -> None:
    assert run("inspect", records, "-v").returncode == 0
    for data in tree(cache).values():
        assert SECRET.encode() not in data


def test_an_interrupted_fetch_goes_on_from_there(
    records: str,
    s3,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    cache: Path,
) -> None:
    for index in range(60):
        values = (event(step, scalar("loss", step)) for step in range(50))
        add(s3, records, write_segment(tmp_path / "local" / f"run_{index}", *values)[0])
    process = start("inspect", records, "--json")
    eventually(lambda: list(cache.rglob("*_MS")))
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=TIMEOUT)
    assert process.returncode in (0, 130), error
    assert "Traceback" not in error
    done = run("verify", records)
    assert done.returncode == 0
    assert "64 files" in done.stdout
