"""The progress line: step, loss, samples per second, elapsed time."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from mindspore.train import Callback
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .meter import Meter

_PLAIN_SECONDS = 5.0  # between two lines where there is no terminal to redraw


class ProgressLine(Callback):
    """Shows how the training goes: redrawn on a terminal, a line now and then elsewhere."""

    def __init__(self, meter: Meter, steps: int, console: Console) -> None:
        super().__init__()
        self._meter = meter
        self._steps = steps
        self._console = console
        self._bar = Progress(
            TextColumn("step {task.completed:,}/{task.total:,}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_interactive,
        )
        self._task = self._bar.add_task("train", total=steps, numbers="compiling the graph …")
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> ProgressLine:
        self._began = self._last_line = time.monotonic()
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # MindSpore leaves its callbacks however the training ended: the terminal is restored.
        self._bar.stop()
        if self._bar.disable and self._meter.steps:
            self._print_line()

    def on_train_step_end(self, run_context: Any) -> None:
        """Counts the step and shows it."""
        loss = run_context.original_args()["net_outputs"][0]
        self._meter.count(float(loss.asnumpy()))
        self._bar.update(self._task, completed=self._meter.steps, numbers=self._numbers())
        if self._bar.disable and time.monotonic() - self._last_line >= _PLAIN_SECONDS:
            self._print_line()

    def _numbers(self) -> str:
        return f"loss {self._meter.loss:.4f}  {self._meter.samples_per_second:,.0f} samples/s"

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        elapsed = self._last_line - self._began
        self._console.print(
            f"step {self._meter.steps:,}/{self._steps:,}  {self._numbers()}  {elapsed:.0f} s",
            highlight=False,
        )
