"""A real TensorBoard to ask over HTTP."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_START_SECS = 120
_LOAD_SECS = 120
# Proxy settings must not apply to the loopback interface.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class TensorBoardServer:
    """TensorBoard on a log directory, as a context."""

    def __init__(
        self,
        logdir: Path,
        log: Path,
        *,
        load_fast: bool,
        arguments: Sequence[str] = (),
        program: Sequence[str] = ("-m", "tensorboard.main"),
    ) -> None:
        self._log = log
        self._command = [
            sys.executable,
            *program,
            *("--logdir", str(logdir)),
            *("--host", "127.0.0.1", "--port", "0"),
            f"--load_fast={str(load_fast).lower()}",
            "--reload_interval=1",
            *arguments,
        ]
        self._url = ""

    def __enter__(self) -> TensorBoardServer:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECS
        while not self._url:
            address = re.search(r"(?: at |TensorBoard: )(http://[^\s/]+)", self._log.read_text())
            if address:
                self._url = address[1]
            elif self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(self._log.read_text())
            else:
                time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(_START_SECS)

    @property
    def url(self) -> str:
        """Where the pages are."""
        return self._url

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def get(self, path: str, **parameters: str) -> Any:
        """Returns the JSON answer to `/data/<path>`; None if it is not there."""
        query = urllib.parse.urlencode(parameters)
        return self._ask(urllib.request.Request(f"{self._url}/data/{path}?{query}"))

    def runs(self) -> set[str]:
        """Returns the runs that are there now."""
        return set(self.get("runs") or ())

    def fetch(self, path: str) -> bytes:
        """Returns the bytes that are answered to `/data/<path>`."""
        with _OPENER.open(f"{self._url}/data/{path}", timeout=_LOAD_SECS) as response:
            return bytes(response.read())

    def fetch_query(self, path: str, **parameters: str) -> bytes:
        """Returns the bytes that are answered to `/data/<path>` with parameters."""
        return self.fetch(f"{path}?{urllib.parse.urlencode(parameters)}")

    def settle(self) -> None:
        """Waits until nothing more is loaded: the list of all scalars stays the same."""
        before = None
        deadline = time.monotonic() + _LOAD_SECS
        while (now := (self.get("plugin/scalars/tags"), self.get("plugin/images/tags"))) != before:
            assert time.monotonic() < deadline, self._log.read_text()
            before = now
            time.sleep(1.5)  # longer than TensorBoard rests between two reloads

    def post(self, path: str, body: object) -> Any:
        """Returns the JSON answer to a POST of `body`."""
        request = urllib.request.Request(
            f"{self._url}/data/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        return self._ask(request)

    def eventually(self, ask: Callable[[], Any]) -> Any:
        """Returns what `ask` returns, as soon as that is something."""
        deadline = time.monotonic() + _LOAD_SECS
        while not (answer := ask()):
            assert time.monotonic() < deadline, f"{answer!r}\n{self._log.read_text()}"
            time.sleep(0.2)
        return answer

    def scalars(self, run: str, tag: str) -> list[tuple[float, int, float]]:
        """Returns wall time, step and value of each point."""
        answer = self.eventually(lambda: self.get("plugin/scalars/scalars", run=run, tag=tag))
        return [(wall_time, step, float(value)) for wall_time, step, value in answer]

    def histograms(self, run: str, tag: str) -> list[tuple[float, int, list[list[float]]]]:
        """Returns wall time, step and the buckets (left, right, count) of each point."""
        answer = self.eventually(lambda: self.get("plugin/histograms/histograms", run=run, tag=tag))
        return [(wall_time, step, buckets) for wall_time, step, buckets in answer]

    def texts(self, run: str, tag: str) -> list[dict[str, Any]]:
        """Returns the points of a text: wall_time, step, and text as HTML."""
        answer = self.eventually(lambda: self.get("plugin/text/text", run=run, tag=tag))
        return list(answer)

    def sessions(self) -> dict[str, dict[str, Any]]:
        """Returns the session groups of the HParams dashboard by name."""
        request = {
            "experimentName": "",
            "allowedStatuses": [
                *("STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING")
            ],
            "colParams": [],
            "startIndex": 0,
            "sliceSize": 1000,
        }
        answer = self.post("plugin/hparams/session_groups", request)
        return {group["name"]: group for group in answer["sessionGroups"]}

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            with _OPENER.open(request, timeout=_LOAD_SECS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code in (400, 404):  # not loaded yet, or not there
                return None
            raise


class ViewServer(TensorBoardServer):
    """`rec-summary view` of records, as a context."""

    def __init__(self, records: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "rec_summary", "view"]
        self._command = [*command, str(records), "--port", "0"]
        self._url = ""
