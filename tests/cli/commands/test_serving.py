"""`rec-summary view` and `serve`, as users meet them."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.command import end, first_line, run, start
from tests.support.record_dirs import event, scalar, tree, write_segment
from tests.support.waiting import PATIENCE_SECS, eventually


def address_of(process: subprocess.Popen[str]) -> str:
    """Waits until `view` has started, and returns where its pages are."""
    found = re.search(r"http://127\.0\.0\.1:\d+/", first_line(process))
    assert found is not None
    return found[0]


def runs_at(address: str) -> set[str]:
    """Returns the runs that a TensorBoard shows."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}data/runs", timeout=PATIENCE_SECS) as answer:
        return set(json.load(answer))


def test_view_shows_and_ends_with_everything(three_runs: Path) -> None:
    # Any port: the next TensorBoard on this machine gets 6006 as soon as it is free again.
    process = start("view", three_runs, "--port", "0")
    address = address_of(process)
    eventually(lambda: runs_at(address), {"run_0", "run_1", "run_2"}.issubset)
    assert end(process)[0] == 0
    with pytest.raises(urllib.error.URLError):
        runs_at(address)


@pytest.mark.parametrize(
    ("tag", "shown"), [("accuracy", "timeseries"), ("recommender/auc/last_9", "rec_summary")]
)
def test_view_opens_the_address_that_it_prints(
    three_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str, shown: str
) -> None:
    write_segment(three_runs / "run_4", event(1, scalar("loss", 1), scalar(tag, 1)))
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho \"$1\" > '{tmp_path}/opened'\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    process = start("view", three_runs, "--open")
    found = re.search(r"http://\S+", first_line(process))
    assert found is not None
    assert "?pinnedCards=" in found[0]
    assert found[0].endswith(f"#{shown}")
    eventually((tmp_path / "opened").read_text, f"{found[0]}\n".__eq__, despite=FileNotFoundError)
    assert end(process)[0] == 0


def test_tensorboard_does_not_outlive_a_view_that_is_killed(three_runs: Path) -> None:
    process = start("view", three_runs, "--port", "0")
    address = address_of(process)
    process.kill()

    def answer() -> object:
        try:
            return runs_at(address)
        except OSError:
            return None

    eventually(answer, lambda runs: runs is None)


def test_view_writes_nothing(
    three_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = tree(tmp_path)
    process = start("view", three_runs)
    address = address_of(process)
    eventually(lambda: runs_at(address), {"run_0", "run_1"}.issubset)
    assert end(process)[0] == 0
    assert tree(tmp_path) == before


def test_serve_is_what_tensorboard_connects_to(three_runs: Path) -> None:
    from tensorboard.data import grpc_provider, server_ingester
    from tensorboard.util.grpc_util import ChannelCredsType

    process = start("serve", three_runs)
    found = re.search(r"127\.0\.0\.1:\d+", first_line(process))
    assert found is not None
    loader = server_ingester.ExistingServerDataIngester(
        found[0], channel_creds_type=ChannelCredsType.LOCAL
    )
    provider = loader.data_provider
    assert isinstance(provider, grpc_provider.GrpcDataProvider)
    eventually(
        lambda: {each.run_name for each in provider.list_runs(None, experiment_id="")},
        {"run_0", "run_1", "run_2"}.issubset,
    )
    assert end(process)[0] == 0


def test_a_port_that_is_taken_is_reported(three_runs: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("view", three_runs, "--port", port)
    assert done.returncode == 1
    assert f"where to listen is invalid. Received: 127.0.0.1, port {port}: " in done.stderr
    assert "a port at which nothing listens; without --port, a free one is taken" in done.stderr


@pytest.mark.parametrize("more", [["--logdir", "x"], ["--logdir=x"], ["--logdir_spec", "a:x"]])
def test_a_log_directory_beside_the_source_is_refused(three_runs: Path, more: list[str]) -> None:
    done = run("view", three_runs, "--", "--window_title", "clicks", *more)
    assert done.returncode == 2
    received = f"Received: --window_title clicks {' '.join(more)}. Expected: no --logdir"
    assert f"an option of TensorBoard is invalid. {received}" in done.stderr
