"""A TensorBoard in this process that shows records."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Sequence
from typing import Any, Final

from tensorboard import default, program
from tensorboard.data import ingester

from rec_summary.errors import RecSummaryError
from rec_summary.tensorboard.provider.plugin import RecordsLoader

LOCALHOST: Final = "127.0.0.1"
_STOP_SECS: Final = 10.0


class BoardError(RecSummaryError):
    """TensorBoard cannot be started."""


class Board:
    """A TensorBoard as a context, in threads of this process.

    Attributes:
        url: Where its pages are; known from entering on.
    """

    def __init__(
        self,
        data_provider: Any,
        logdir: str,
        *,
        host: str = LOCALHOST,
        port: int | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Prepares; entering starts it.

        Args:
            data_provider: Has everything that is shown but the Projector's files.
            logdir: Has the files of the Projector.
            host: The address to listen at. TensorBoard has no passwords: at any address other
                than this machine's own, anyone who can reach it can see the records.
            port: The port to listen at; by default a free one from 6006 on.
            arguments: More arguments for TensorBoard.
        """
        self.url = ""
        self._provider = data_provider
        self._arguments = [
            *("tensorboard", "--logdir", logdir, "--host", host),
            *(() if port is None else ("--port", str(port))),
            *arguments,
        ]

    def __enter__(self) -> Board:
        """Starts it; its pages can be opened from then on.

        Raises:
            BoardError: It does not start, for example because the port is in use.
        """
        others = [each for each in default.get_dynamic_plugins() if each is not RecordsLoader]
        board = _Program(default.get_static_plugins() + others)
        board.provider = self._provider
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                board.configure(self._arguments)
                self._server = board.make_server()
        except (SystemExit, program.TensorBoardServerException, ValueError) as error:
            text = said.getvalue().strip() or str(error)
            raise BoardError(f"TensorBoard does not start. It says:\n{text}") from error
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

    def make_server(self) -> Any:
        """Returns the server of its pages."""
        return self._make_server()

    def _make_data_ingester(self) -> Any:
        return _Ingester(self.provider)


class _Ingester(ingester.DataIngester):  # type: ignore[misc]
    def __init__(self, data_provider: Any) -> None:
        self._provider = data_provider

    @property
    def data_provider(self) -> Any:
        return self._provider

    def start(self) -> None:
        """Does nothing: the provider is up to date."""
