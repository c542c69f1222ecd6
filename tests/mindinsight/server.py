"""A real MindInsight to ask over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final = Path(__file__).resolve().parents[2] / ".venv-mindinsight"

_START_SECS: Final = 120
_LOAD_SECS: Final = 120
_STOP_SECS: Final = 10
_RELOAD_SECS: Final = 1
# So long must an answer stay the same to count as MindInsight's last word: longer than the
# pause between two of its reloads.
_SETTLED_SECS: Final = 2.5
# The proxy settings of a machine must not stand between us and the loopback.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_installed() -> bool:
    """Whether `tools/check mindinsight` has made MindInsight's environment."""
    return (ENVIRONMENT / "installed").exists()  # written when all of it is there


class MindInsightServer:
    """MindInsight on a directory of record directories, as a context.

    It shows the directory itself and those directly in it, each as a train job with the id
    `./<name>`; deeper ones it does not see. It keeps the records of the 15 newest.
    """

    def __init__(self, base: Path) -> None:
        """Prepares a server.

        Args:
            base: The directory of record directories.
        """
        self._base = base
        self._url = ""
        self._group = 0

    def __enter__(self) -> MindInsightServer:
        self._workspace = tempfile.TemporaryDirectory(prefix="mindinsight-")
        port = _free_port()
        command = [
            *(str(ENVIRONMENT / "bin" / "mindinsight"), "start"),
            *("--port", str(port)),
            *("--workspace", self._workspace.name),
            *("--summary-base-dir", str(self._base)),
        ]
        output = Path(self._workspace.name, "start.txt")
        with output.open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._workspace.name,
                env=_environment(self._workspace.name),
                start_new_session=True,  # all that it leaves behind is in one process group
            )
            self._group = process.pid
        try:
            code = process.wait(_START_SECS)  # it starts gunicorn, looks, and leaves it alone
            assert code == 0, f"`mindinsight start` ended with {code}: {output.read_text()}"
            self._url = f"http://127.0.0.1:{port}/v1/mindinsight"
            self.eventually(self._loaded)
            self.settled(self._counts)
        except BaseException:
            if process.poll() is None:
                process.kill()
                process.wait()
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # gunicorn's workers fork servers of their own, which outlive a gentle stop of the first.
        for each in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _STOP_SECS
            while _members(self._group) and time.monotonic() < deadline:
                _signal_group(self._group, each)
                time.sleep(0.2)
        left = _members(self._group)
        self._workspace.cleanup()
        assert not left, f"MindInsight's processes {left} do not end"

    def get(self, path: str, **parameters: Any) -> Any:
        """Returns the JSON answer to a GET; None where there is no such thing (yet)."""
        content = self.get_bytes(path, **parameters)
        return None if content is None else json.loads(content)

    def get_bytes(self, path: str, **parameters: Any) -> bytes | None:
        """Returns the answer to a GET as it is; None where there is no such thing (yet)."""
        query = urllib.parse.urlencode(parameters)
        return self._ask(urllib.request.Request(f"{self._url}/{path}?{query}"))

    def post(self, path: str, body: object) -> Any:
        """Returns the JSON answer to a POST of `body`; None where it is refused."""
        request = urllib.request.Request(
            f"{self._url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        content = self._ask(request)
        return None if content is None else json.loads(content)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Returns the train jobs by id: their tags by kind, and how many files they have."""
        answer = self.get("datavisual/train-jobs", limit=999)
        return {job["train_id"]: job for job in answer["train_jobs"]}

    def tags(self, job: str, kind: str) -> list[str]:
        """Returns the tags of a kind: scalar, histogram, image, tensor, graph..."""
        return list(self.jobs()[job]["plugins"][kind])

    def scalars(self, job: str, tag: str) -> list[tuple[float, int, float]] | None:
        """Returns wall time, step and value of each point; None if there is no such tag."""
        answer = self.get("datavisual/scalar/metadata", train_id=job, tag=tag)
        if answer is None:
            return None
        return [(each["wall_time"], each["step"], each["value"]) for each in answer["metadatas"]]

    def lineages(self) -> dict[str, dict[str, Any]]:
        """Returns the lineages by train job: `model_lineage` and `dataset_graph`."""
        answer = self.post("lineagemgr/lineages", {"limit": 100})
        return {each["summary_dir"]: each for each in answer["object"]}

    def eventually(self, ask: Callable[[], Any]) -> Any:
        """Returns what `ask` returns, as soon as that is something."""
        deadline = time.monotonic() + _LOAD_SECS
        while not (answer := ask()):
            assert time.monotonic() < deadline, f"nothing came:\n{self._log()}"
            time.sleep(0.2)
        return answer

    def settled(self, ask: Callable[[], Any]) -> Any:
        """Returns what `ask` returns, once that has stopped changing."""
        deadline = time.monotonic() + _LOAD_SECS
        answer, since = ask(), time.monotonic()
        while time.monotonic() - since < _SETTLED_SECS:
            assert time.monotonic() < deadline, f"it keeps changing:\n{self._log()}"
            time.sleep(0.2)
            if (following := ask()) != answer:
                answer, since = following, time.monotonic()
        return answer

    def _loaded(self) -> bool:
        """Whether every job has been read once; only a first sign, files may still be open."""
        try:
            jobs = self.jobs().values()
        except urllib.error.URLError:  # not listening yet
            return False
        return bool(jobs) and all(
            job["cache_status"] == "CACHED" for job in jobs if job["summary_files"]
        )

    def _counts(self) -> Any:
        """What MindInsight has of each job, in numbers: points of each scalar, tags, lineages."""
        counts = {
            (name, tag): len(self.scalars(name, tag) or ())
            for name, job in self.jobs().items()
            for tag in job["plugins"]["scalar"]
        }
        tags = {name: job["plugins"] for name, job in self.jobs().items()}
        return counts, tags, self.lineages()

    def _ask(self, request: urllib.request.Request) -> bytes | None:
        try:
            with _OPENER.open(request, timeout=_LOAD_SECS) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            if error.code in (400, 404):
                return None
            raise AssertionError(f"{request.full_url}: {error.read()!r}\n{self._log()}") from error

    def _log(self) -> str:
        """The end of each of MindInsight's logs."""
        logs = sorted(Path(self._workspace.name).rglob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in logs)


def _environment(workspace: str) -> dict[str, str]:
    """Returns the environment for MindInsight: this process's, without its Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "MINDINSIGHT_", "GUNICORN_")) and name != "VIRTUAL_ENV"
    }
    # It starts `gunicorn` by that name, wherever PATH finds it.
    kept["PATH"] = f"{ENVIRONMENT / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
    # Its first log files are there before it has read its own options; they belong nowhere else.
    kept["MINDINSIGHT_WORKSPACE"] = workspace
    kept["MINDINSIGHT_RELOAD_INTERVAL"] = str(_RELOAD_SECS)
    return kept


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _members(group: int) -> list[int]:
    """Returns the live processes of a process group (from /proc: MindInsight is for Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything; after it: state, parent, group.
            state, _, of_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has just ended
            continue
        if int(of_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
