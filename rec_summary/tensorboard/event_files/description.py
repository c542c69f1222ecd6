"""What is said of a run as a whole: the Text tables, and the session of the HParams dashboard."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.series.lineage import Lineage
from rec_summary.series.parameters import hyper_parameters
from rec_summary.series.report import Tally
from rec_summary.series.words import printable
from rec_summary.tensorboard.dashboards import hparams
from rec_summary.tensorboard.dashboards.text import lineage_point
from rec_summary.tensorboard.event_files.output import TensorBoardRun

_KIND: Final = "lineage"
_LAST_HPARAMS_STEP: Final = 2**31 - 1  # `MetricValue.training_step` of its API is an int32


class Description:
    """Keeps the description of one run up to date.

    A text can be written again, at a later step. A session cannot: TensorBoard keeps the
    first hyper-parameters and the first status that it reads. So `update` may ask for the
    run to be exported anew.

    Attributes:
        lineages: What is known of each rank.
        running: The TensorBoard run that says that the run is going on, while it does.
    """

    def __init__(self, run: str, tally: Tally) -> None:
        """Begins with nothing known of the run called `run`."""
        self.lineages: dict[int, Lineage] = {}
        self.running: TensorBoardRun | None = None
        self._run = run
        self._tally = tally
        self._texts: dict[int, list[int]] = {}  # by rank: checksums of facts and text, restarts
        self._text_rank: int | None = None  # the rank whose text is the run's own
        self._session_rank: int | None = None
        self._started: str | None = None  # the hyper-parameters that were written
        self._ended: int | None = None  # the status that was written
        self._has_noted = False

    def lineage(self, rank: int) -> Lineage:
        """Returns what is known of a rank, to be added to."""
        return self.lineages.setdefault(rank, Lineage())

    def write_texts(
        self,
        session: TensorBoardRun,
        outputs: Callable[[int], TensorBoardRun],
        step: int,
        *,
        final: bool,
    ) -> None:
        """Writes the tables of ranks of which something new is known.

        The first rank's stand in the run itself, those of others in their own sub-runs.

        Args:
            session: The run itself.
            outputs: Gives the TensorBoard run of a rank.
            step: How far training has got.
            final: Whether everything that is known is to be told, and not only what
                matters: a live export would write a table a second, for its step alone.
        """
        for rank, lineage in sorted(self.lineages.items()):
            if lineage.empty:
                continue
            if self._text_rank is None:
                self._text_rank = rank
            home = session if rank == self._text_rank else outputs(rank)
            point = lineage_point(lineage)
            text = zlib.crc32(point.value.tensor.string_val[0])
            facts = [zlib.crc32(_facts(lineage).encode()), home.restarts]
            told = self._texts.get(rank)
            if told is None or told[:2] != facts or (final and told[2] != text):
                home.put(step, lineage.last_time, _KIND, [point])
                self._texts[rank] = [*facts, text]

    def write_session(
        self,
        session: TensorBoardRun,
        open_running: Callable[[], TensorBoardRun],
        began: float | None,
        furthest: int,
        *,
        final: bool,
    ) -> bool:
        """Writes the start and the end of the session when they are known.

        They are those of the lowest rank with a lineage of training.

        Args:
            session: The run itself.
            open_running: Gives the TensorBoard run that says that the run is going on.
            began: The time of the first record, if there is one, in seconds since the epoch.
            furthest: The furthest from zero that any step is.
            final: Whether to make do with what is known, even if more is to come.

        Returns:
            Whether what stands in the event file is right. If not, the run has to be
            exported anew.
        """
        lineage = self._session_lineage()
        if lineage is None or (lineage.train is None and not final):
            return True  # MindSpore writes hyper-parameters when training has ended
        if abs(furthest) > _LAST_HPARAMS_STEP:
            self._note_too_far(furthest)
            self._leave_running(session)
            return self._started is None
        wall_time = lineage.last_time
        facts, ended = _hyper_facts(lineage), hparams.ended_status(lineage)
        if self._started is None:
            start = hparams.start_point(self._run, lineage, wall_time if began is None else began)
            session.put(0, wall_time, _KIND, [start])
            self._started = facts
        elif facts != self._started:
            return not final
        if ended is None:
            if lineage.status == RunState.RUNNING and self.running is None:
                self._write_running(open_running(), lineage, began)
            return True
        self._leave_running(session)
        if self._ended is None:
            end = hparams.end_point(ended, lineage.train_time)
            session.put(0, wall_time, _KIND, [end])
            self._ended = ended
        return self._ended == ended or not final

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs; JSON can hold it."""
        lineages = {str(rank): lineage.state() for rank, lineage in self.lineages.items()}
        return {
            "lineages": lineages,
            "texts": {str(rank): told for rank, told in self._texts.items()},
            "text_rank": self._text_rank,
            "session_rank": self._session_rank,
            "started": self._started,
            "ended": self._ended,
            "running": self.running is not None,
        }

    def restore(self, state: dict[str, Any], open_running: Callable[[], TensorBoardRun]) -> None:
        """Goes on where an earlier export was."""
        self.lineages = {
            int(rank): Lineage.restored(lineage) for rank, lineage in state["lineages"].items()
        }
        self._texts = {int(rank): told for rank, told in state["texts"].items()}
        self._text_rank = state["text_rank"]
        self._session_rank = state["session_rank"]
        self._started, self._ended = state["started"], state["ended"]
        if state["running"]:
            self.running = open_running()

    def _session_lineage(self) -> Lineage | None:
        if self._session_rank is None:
            ranks = [rank for rank, each in self.lineages.items() if each.describes_training]
            if not ranks:
                return None
            self._session_rank = min(ranks)
        return self.lineages[self._session_rank]

    def _write_running(self, output: TensorBoardRun, lineage: Lineage, began: float | None) -> None:
        self.running = output
        started = lineage.last_time if began is None else began
        points = [
            hparams.start_point(self._run, lineage, started),
            hparams.end_point(hparams.RUNNING),
        ]
        output.put(0, lineage.last_time, _KIND, points)

    def _leave_running(self, session: TensorBoardRun) -> None:
        if self.running is None:
            return
        session.flush()  # nobody shall see neither
        self.running.discard()
        self.running = None

    def _note_too_far(self, furthest: int) -> None:
        if self._has_noted:
            return
        self._has_noted = True
        # Its page would fail for all runs, not only for this one.
        self._tally.note(
            f"run {printable(self._run)}: not in the HParams dashboard, which "
            f"cannot bear steps beyond {_LAST_HPARAMS_STEP} (it has {furthest}); "
            "the text has its hyper-parameters"
        )


def _hyper_facts(lineage: Lineage) -> str:
    return json.dumps(hyper_parameters(lineage), sort_keys=True)


def _facts(lineage: Lineage) -> str:
    """Returns what matters of a lineage, without how far it has come."""
    reason = lineage.train.run_state.reason if lineage.train is not None else ""
    return json.dumps(
        [
            hyper_parameters(lineage),
            lineage.status,
            str(reason),
            lineage.evaluations,
            lineage.metrics,
            lineage.valid_dataset,
        ],
        sort_keys=True,
    )
