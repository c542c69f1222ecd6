"""The description of a run: its tables in Text, and its session in the HParams dashboard."""

from __future__ import annotations

import json
import zlib
from typing import Final

from msgspec import Struct, convert

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.series.limits import Checksum, Count, Rank, Seconds
from rec_summary.series.lineage import Lineage, hyper_parameters
from rec_summary.series.text import check_unicode, printable
from rec_summary.tensorboard.dashboards.hparams import LAST_STEP, ended_status, session_points
from rec_summary.tensorboard.dashboards.text import lineage_point
from rec_summary.tensorboard.event_files.run_writer import TensorBoardRuns

_KIND: Final = "lineage"


class Description(Struct, dict=True):
    """What is known of a run as a whole, and what of it was written.

    A text can be written again, at a later step. A session cannot: TensorBoard keeps the
    first hyper-parameters and the first status that it reads. So `write_session` can require
    that the run is exported again from the beginning.

    Attributes:
        lineages: What is known of each rank.
        texts: For each rank, the checksum of the facts that were written, the number of restarts
            until then, and the checksum of the text.
        text_rank: The rank whose text is the run's own.
        session_rank: The rank whose hyper-parameters are the session's.
        started: The hyper-parameters that were written.
        ended: The status that was written.
        running: Whether a sub-run states that the run is running.
    """

    lineages: dict[Rank, Lineage] = {}
    texts: dict[Rank, tuple[Checksum, Count, Checksum]] = {}
    text_rank: Rank | None = None
    session_rank: Rank | None = None
    started: str | None = None
    ended: Count | None = None
    running: bool = False
    _has_noted = False  # not annotated: it is not stored

    def __post_init__(self) -> None:
        if self.session_rank is not None and self.session_rank not in self.lineages:
            raise ValueError("session_rank has no lineage")
        for lineage in self.lineages.values():
            convert([lineage.train_time, lineage.last_time], list[Seconds])
            check_unicode([lineage.custom, lineage.metrics, lineage.valid_dataset, lineage.notes])
            check_unicode(lineage.directions)

    def write_texts(self, outputs: TensorBoardRuns, step: int, *, final: bool) -> None:
        """Writes the tables of ranks of which something new is known.

        The table of the first rank is in the run itself, those of others in their own sub-runs.

        Args:
            outputs: The TensorBoard runs of the run.
            step: The step that training has reached.
            final: Whether to write everything that is known. A live export writes only what
                matters; otherwise it would write a table each second, for its step alone.
        """
        for rank, lineage in sorted(self.lineages.items()):
            if lineage.empty:
                continue
            if self.text_rank is None:
                self.text_rank = rank
            is_first = rank == self.text_rank
            home = outputs.session() if is_first else outputs.writer(rank)
            if home is None:
                continue
            point = lineage_point(lineage)
            text = zlib.crc32(point.value.tensor.string_val[0])
            facts = (zlib.crc32(_facts(lineage).encode()), home.restarts)
            written = self.texts.get(rank)
            if written is None or written[:2] != facts or (final and written[2] != text):
                home.put(step, lineage.last_time, _KIND, [point])
                self.texts[rank] = (*facts, text)

    def write_session(
        self, outputs: TensorBoardRuns, began: float | None, furthest: int, *, final: bool
    ) -> bool:
        """Writes the start and the end of the session when they are known.

        They are those of the lowest rank with a lineage of training.

        Args:
            outputs: The TensorBoard runs of the run.
            began: The time of the first record, if there is one, in seconds since the epoch.
            furthest: The step that is furthest from zero.
            final: Whether to write what is known, even if it is not complete.

        Returns:
            Whether what is in the event file is right. If not, the run has to be exported
            again from the beginning.
        """
        lineage = self._session_lineage()
        if lineage is None or not (final or _is_complete(lineage)):
            return True
        if abs(furthest) > LAST_STEP:
            self._note_too_far(outputs, furthest)
            self._leave_running(outputs)
            return self.started is None
        session, wall_time = outputs.session(), lineage.last_time
        hyper, ended = json.dumps(hyper_parameters(lineage), sort_keys=True), ended_status(lineage)
        points = session_points(outputs.run.name, lineage, began)
        if self.started is None:
            session.put(0, wall_time, _KIND, points[:1])
            self.started = hyper
        elif final and hyper != self.started:
            return False
        if ended is None:
            if lineage.status == RunState.RUNNING and not self.running:
                self.running = True
                outputs.running().put(0, wall_time, _KIND, points)
            return True
        self._leave_running(outputs)
        if self.ended is None:
            session.put(0, wall_time, _KIND, points[1:])
            self.ended = ended
        return self.ended == ended or not final

    def _session_lineage(self) -> Lineage | None:
        if self.session_rank is None:
            ranks = [rank for rank, each in self.lineages.items() if each.describes_training]
            if not ranks:
                return None
            self.session_rank = min(ranks)
        return self.lineages[self.session_rank]

    def _leave_running(self, outputs: TensorBoardRuns) -> None:
        if self.running:
            outputs.session().flush()  # a reader always sees one of the two sessions
            outputs.running().discard()
            self.running = False

    def _note_too_far(self, outputs: TensorBoardRuns, furthest: int) -> None:
        if self._has_noted:
            return
        self._has_noted = True
        # With such a step, the page fails for all runs.
        outputs.report.note(
            f"run {printable(outputs.run.name)}: not in the HParams dashboard, which does "
            f"not support steps beyond {LAST_STEP} (the run has {furthest}); the text "
            "has its hyper-parameters"
        )


def _is_complete(lineage: Lineage) -> bool:
    """Whether the hyper-parameters are those that the session will keep.

    MindSpore writes them when training has ended. Ours begin without the batch size of a stream,
    which is known after the first step.
    """
    if lineage.train is None:
        return False
    state = lineage.state
    return state.status != RunState.RUNNING or not state.HasField("step") or state.step > 0


def _facts(lineage: Lineage) -> str:
    """Returns a lineage without its progress, as JSON."""
    return json.dumps(
        [
            hyper_parameters(lineage),
            lineage.status,
            str(lineage.state.reason),
            lineage.evaluations,
            lineage.metrics,
            lineage.valid_dataset,
            *lineage.notes,
        ],
        sort_keys=True,
    )
