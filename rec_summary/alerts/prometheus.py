"""The last values of runs as metrics of Prometheus: its text, and a server that it scrapes."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, MetricsHandler, generate_latest
from prometheus_client.core import GaugeMetricFamily

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts.last_values import LastOfRun, LastValues
from rec_summary.errors import SourceError, os_errors_as
from rec_summary.metrics.tags import JUDGED, OF_TASK, PREFIX, SLICE_TAG
from rec_summary.scrubbing import scrubbed
from rec_summary.series.overview.statistics import HEALTH
from rec_summary.series.text import printable, shown

_NAMESPACE: Final = "recsummary_"  # a name with _summary_ would be a type to Prometheus
_CLIENT_SECS: Final = 10.0  # that a client may take to read
_MOST_CLIENTS: Final = 32
_REASON_CHARS: Final = 500  # in a label, which the mail of an alert contains
_WINDOWED: Final = rf"(?:{JUDGED}|examples|clicks|click_rate)"
_RECOMMENDER: Final = re.compile(
    rf"{PREFIX}(?P<task>{OF_TASK}){_WINDOWED}/(?P<window>[^/]+)", re.ASCII
)
_PLACE: Final = ("run", "rank")
_OF_SLICE: Final = ("column", "value")  # the last ones: those of other series have none
_SERIES: Final = (*_PLACE, "tag", "task", "window", *_OF_SLICE)
_HELP: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "value": ("The last value of a series.", _SERIES),
    "step": ("The training step of the last value of a series.", _SERIES),
    "timestamp_seconds": ("When the last value of a series was recorded.", _SERIES),
    "health": ("The telemetry's counters of itself.", (*_PLACE, "counter")),
    "last_step": ("The last recorded training step of a rank.", _PLACE),
    "last_record_timestamp_seconds": ("When a rank recorded last.", _PLACE),
    "last_record_age_seconds": ("The time since the last record of a rank arrived.", _PLACE),
    "run_status": ("1 for the status of a run, 0 for every other one.", ("run", "status")),
    "run_end_reason": ("1 for why a run has stopped or failed.", ("run", "status", "reason")),
    "run_alive": ("Whether a run that should be running shows a sign of life.", ("run",)),
    "run_ranks": ("How many ranks a run says that it has.", ("run",)),
    "run_start_timestamp_seconds": ("When a training began.", ("run",)),
    "run_troubles": ("How often telemetry has failed in a training.", ("run", "kind")),
    "alert_firing": (
        "1 for each alert of `rec-summary` that fires.",
        (*_PLACE, "tag", "rule", *_OF_SLICE),
    ),
    "alerts_firing": ("How many alerts fire.", ()),
    "runs": ("How many runs there are.", ()),
    "read_problems": ("How often records could not be read.", ()),
    "last_poll_timestamp_seconds": ("When the records were read last.", ()),
}


class Exposition:
    """A collector of `prometheus_client`: the last values at the time of a scrape."""

    def __init__(self, values: LastValues) -> None:
        """Takes the values that it shows."""
        self._values = values

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields all metrics. The same labels never come twice, for then all would be refused."""
        families = {
            name: GaugeMetricFamily(_NAMESPACE + name, text, labels=labels)
            for name, (text, labels) in _HELP.items()
        }
        seen: set[tuple[str, ...]] = set()

        def add(name: str, labels: tuple[str, ...], value: float) -> None:
            # A written `\t` is not a tab: a backslash is escaped as well.
            labels = tuple(printable(label.replace("\\", "\\\\")) for label in labels)
            if (key := (name, *labels)) not in seen:
                seen.add(key)
                families[name].add_metric(labels, value)

        values = self._values
        with values.lock:
            # A run that is half read would look stalled: its last record seems to be an old one.
            runs = [*values.runs.items()] if values.polled else []
            firing = values.firing
            for name, run in runs:
                self._add_series(add, name, run)
            add("read_problems", (), values.problems)
            add("last_poll_timestamp_seconds", (), values.polled)
        for name, run in runs:
            self._add_run(add, name, run)
        for alert in firing:
            tag, _, _, *of_slice = _labels(alert.tag or "")
            place = (alert.run, str(alert.rank), tag, alert.rule.title)
            add("alert_firing", (*place, *of_slice), 1.0)
        add("alerts_firing", (), len(firing))
        add("runs", (), len(runs))
        yield from families.values()

    def _add_series(self, add: Any, name: str, run: LastOfRun) -> None:
        for (rank, tag), last in run.values.items():
            if run.has_left(rank):
                continue
            place = (name, str(rank))
            if tag.startswith(HEALTH):
                add("health", (*place, tag.removeprefix(HEALTH)), last.value)
                continue
            labels = (*place, *_labels(tag))
            add("value", labels, last.value)
            add("step", labels, last.step)
            add("timestamp_seconds", labels, last.wall_time)
        for rank, step in run.steps.items():
            if not run.has_left(rank):
                add("last_step", (name, str(rank)), step)

    def _add_run(self, add: Any, name: str, run: LastOfRun) -> None:
        now = time.monotonic()
        for rank, recorded in [*run.recorded.items()]:
            if run.has_left(rank):
                continue
            add("last_record_timestamp_seconds", (name, str(rank)), recorded)
            add("last_record_age_seconds", (name, str(rank)), now - run.arrived[rank])
        status = run.status
        for value in RunState.Status.keys():  # noqa: SIM118  # no dict
            add("run_status", (name, value), float(value == status))
        add("run_alive", (name,), float(run.shows_life()))
        state = run.state
        if state is not None and state.reason and state.status != RunState.RUNNING:
            add(
                "run_end_reason", (name, status, scrubbed(shown(state.reason))[:_REASON_CHARS]), 1.0
            )
        add("run_ranks", (name,), run.rank_size or len(run.recorded))
        if state is not None and state.HasField("start_time"):
            add("run_start_timestamp_seconds", (name,), state.start_time)
        for kind, count in sorted(state.troubles.items()) if state is not None else ():
            add("run_troubles", (name, kind), count)


def _labels(tag: str) -> tuple[str, ...]:
    """Returns the tag, without the value of a slice, the task, the window, and `_OF_SLICE`."""
    if sliced := SLICE_TAG.fullmatch(tag):
        start, task, column, value, rest, window = sliced.groups(default="")
        of_slice = (column, urllib.parse.unquote(value))
        return start + rest, task.rstrip("/"), window, *of_slice
    match = _RECOMMENDER.fullmatch(tag)
    parts = (match["task"].rstrip("/"), match["window"]) if match else ("", "")
    return tag, *parts


def registry_of(values: LastValues) -> CollectorRegistry:
    """Returns a registry with these values alone."""
    registry = CollectorRegistry(auto_describe=True)  # else `name[]=` finds nothing
    registry.register(Exposition(values))
    return registry


def text_of(values: LastValues) -> bytes:
    """Returns the metrics in the text format of Prometheus."""
    return generate_latest(registry_of(values))


class MetricsServer:
    """Serves the metrics over HTTP, in threads of its own.

    Attributes:
        address: The URL to scrape.
    """

    def __init__(
        self,
        values: LastValues,
        host: str,
        port: int,
        *,
        client_secs: float = _CLIENT_SECS,
        most_clients: int = _MOST_CLIENTS,
    ) -> None:
        """Begins to listen.

        Args:
            values: What is served.
            host: The address to listen at.
            port: The port; 0 for a free one.
            client_secs: The time that a client may take to ask, and to read.
            most_clients: How many clients there may be at a time.

        Raises:
            SourceError: It cannot listen there.
        """
        expected = "an address of this machine and a port at which nothing listens"
        with os_errors_as(SourceError, "the address", f"{host}:{port}", expected):
            handler: Any = _Handler.factory(registry_of(values))
            handler.timeout = client_secs
            self._server = _Server((host, port), handler, most_clients)
        netloc = f"[{host}]" if ":" in host else host
        self.address = f"http://{netloc}:{self._server.server_port}/metrics"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Ends it; requests that are being answered are given up."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """One thread for each client, and a limit to both clients and their time."""

    def __init__(self, address: tuple[str, int], handler: Any, most: int) -> None:
        self.request_queue_size = most  # a client that finds no place asks again a second later
        self._room = threading.BoundedSemaphore(most)
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which looks up the name of the host: that may take long.
        TCPServer.server_bind(self)
        self.server_port = self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing about a client that went away or never read."""


class _Handler(MetricsHandler):
    """Gives up on a client that does not read, or takes too long to say what it wants.

    An answer has a Content-Length, which `MetricsHandler` leaves out: one that is cut off looks
    complete without it.
    """

    timeout = _CLIENT_SECS  # of one `recv`, and of all that a `sendall` sends

    def setup(self) -> None:
        super().setup()
        self._late = False
        self._timer = threading.Timer(self.timeout, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def parse_request(self) -> bool:
        """Reads the headers; returns whether there is a request to answer."""
        is_complete = super().parse_request()
        self._timer.cancel()
        return is_complete and not self._late

    def do_GET(self) -> None:
        client, self.wfile = self.wfile, io.BytesIO()
        super().do_GET()
        head, _, body = self.wfile.getvalue().partition(b"\r\n\r\n")
        self.wfile = client
        client.write(b"%b\r\nContent-Length: %d\r\n\r\n" % (head, len(body)))
        if self.command != "HEAD":
            client.write(body)

    do_HEAD = do_GET  # the name that the server looks for

    def finish(self) -> None:
        self._timer.cancel()
        super().finish()

    def _give_up(self) -> None:
        self._late = True
        with contextlib.suppress(OSError):  # it has gone meanwhile
            self.connection.shutdown(socket.SHUT_RDWR)
