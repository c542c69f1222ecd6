"""A TensorBoard in this process that shows records."""

from __future__ import annotations

import argparse
import contextlib
import io
import ipaddress
import os
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

from tensorboard import default, program
from tensorboard.plugins import base_plugin

from rec_summary.errors import RecSummaryError, three_part, verbatim
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.plugin import RecordsLoader
from rec_summary.tensorboard.provider.records_plugin import RecordsPlugin
from rec_summary.tensorboard.provider.run_index import RunIndex

LOCALHOST: Final = "127.0.0.1"
_STOP_SECS: Final = 10.0
# A tag of all runs is sent in one answer, at about 10 microseconds and 75 bytes for a point.
_MOST_POINTS: Final = 90_000
_MOST_SAMPLES: Final = 10_000
_LEAST_SAMPLES: Final = 100
_OTHER_SAMPLES: Final = "histograms=500,images=100,text=100"


class BoardError(RecSummaryError):
    """TensorBoard cannot be started."""


class Board:
    """A TensorBoard as a context, in threads of this process.

    Attributes:
        url: Where its pages are; known from entering on.
    """

    def __init__(
        self,
        index: RunIndex,
        *,
        host: str = LOCALHOST,
        port: int | None = None,
        runs: int = 1,
        arguments: Sequence[str] = (),
    ) -> None:
        """Prepares; entering starts it.

        Args:
            index: Has the runs; someone keeps it up to date.
            host: The address to listen at. TensorBoard has no passwords: at any address other
                than this machine's own, anyone who can reach it can see the records.
            port: The port to listen at; by default a free one from 6006 on.
            runs: How many runs there are: of many runs, each series has fewer points.
            arguments: More arguments for TensorBoard.
        """
        samples = f"scalars={scalar_samples(runs)},{_OTHER_SAMPLES}"
        self.url = ""
        self._index = index
        self._arguments = [
            *("tensorboard", "--logdir", os.devnull),
            *(() if _listening(host, arguments).bind_all is not None else ("--host", host)),
            *("--samples_per_plugin", samples),
            *(() if port is None else ("--port", str(port))),
            *arguments,
        ]

    def __enter__(self) -> Board:
        """Starts it; its pages can be opened from then on.

        Raises:
            BoardError: It does not start, for example because the port is in use.
        """
        others = [plugin for plugin in default.get_dynamic_plugins() if plugin is not RecordsLoader]
        # The first page that is active is the first tab, and the page of an address without a name.
        first = _PageLoader(self._index)
        board = _Program([first, *default.get_static_plugins(), *others])
        board.provider = RecordDataProvider(self._index)
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                board.configure(self._arguments)
                self._server = board._make_server()
        except (SystemExit, OSError, program.TensorBoardServerException, ValueError) as error:
            text = said.getvalue().strip() or str(error)
            if board.flags is None or isinstance(error, ValueError):
                raise BoardError(f"TensorBoard does not start. It says:\n{text}") from error
            address = f"{board.flags.host or 'all addresses'}, port {board.flags.port or 'any'}"
            expected = (
                "an address of this machine, and a port at which nothing listens; without --port, "
                "a free one is taken"
            )
            received = verbatim(f"{address}: {text}")
            raise BoardError(three_part("where to listen", received, expected)) from error
        self.url = self._server.get_url()
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="rec_summary-board", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(_STOP_SECS)
        self._server.server_close()


class _Program(program.TensorBoard):  # type: ignore[misc]
    """TensorBoard with a data provider of ours."""

    provider: Any

    def _make_data_ingester(self) -> Any:
        return SimpleNamespace(data_provider=self.provider, start=lambda: None)  # is up to date


class _PageLoader(base_plugin.TBLoader):  # type: ignore[misc]
    def __init__(self, index: RunIndex) -> None:
        self._index = index

    def load(self, context: Any) -> RecordsPlugin:
        """Returns the plugin with the page of recommenders."""
        return RecordsPlugin(context, self._index)


def scalar_samples(runs: int) -> int:
    """Returns how many points of a series of scalars a page gets.

    It is so many that a tag of all runs is answered in less than 2 seconds.

    Args:
        runs: How many runs there are.
    """
    return min(max(_MOST_POINTS // max(runs, 1), _LEAST_SAMPLES), _MOST_SAMPLES)


def exposed(host: str, arguments: Sequence[str]) -> str | None:
    """Returns the address at which others can reach a viewer with these options; None if none.

    Args:
        host: The address to listen at.
        arguments: More arguments for TensorBoard; they may have another address.
    """
    options = _listening(host, arguments)
    if options.bind_all is not None:
        return "all addresses of this machine"
    return None if _is_loopback(options.host or host) else options.host


def _listening(host: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns TensorBoard's options `host` and `bind_all`, as a user has given them."""
    # Like TensorBoard's parser, this one accepts beginnings of options.
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", nargs="?", default=host)
    parser.add_argument("--bind_all", nargs="?", const=True)
    return parser.parse_known_args(arguments)[0]


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
