"""What adds the values of a recorded run to the TensorBoard runs that are served."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
from tensorboard.plugins.graph import metadata as graphs

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, Batch, Record, Recorded, Series, by_tag, concatenated
from rec_summary.series.comparison.samples import SAMPLES, STEP, Totals
from rec_summary.series.lineage import Plain
from rec_summary.series.options import EVERYTHING
from rec_summary.series.ranks.summary import History
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import Restart
from rec_summary.tensorboard.dashboards.graphs.graph_def import tagged_graph
from rec_summary.tensorboard.dashboards.images import IMAGES
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import SCALARS, Point
from rec_summary.tensorboard.dashboards.ranks import heat_map_tag
from rec_summary.tensorboard.outputs import (
    BEST_KIND,
    COMPUTATION,
    Names,
    RunOutput,
    RunOutputs,
    TargetNames,
)
from rec_summary.tensorboard.provider.served_run import RUN_GRAPH, ServedRun
from rec_summary.tensorboard.provider.served_series import (
    FixedSeries,
    PictureSeries,
    ScalarSeries,
    StoredSeries,
)
from rec_summary.tensorboard.run_reader import MadeRecord

_RANKS: Final = "ranks"


class ServedOutput(RunOutput):
    """Adds values to one TensorBoard run, while others read it."""

    _draws = False  # before a picture is asked for

    def __init__(
        self, run: ServedRun, stamp: int, report: Report, *, is_evaluation: bool = False
    ) -> None:
        """Begins empty.

        Args:
            run: The run.
            stamp: When its records were begun, in whole seconds.
            report: Takes what cannot be shown.
            is_evaluation: Whether its scalars are metrics of evaluations.
        """
        super().__init__(run.name, report, EVERYTHING, best={}, is_evaluation=is_evaluation)
        self._run = run
        self._stamp = stamp
        self._laid_out = 0
        self._converted: set[Series] = set()  # series that have a name, and are converted

    def take(self, batch: Batch) -> None:
        """Takes recorded values."""
        with self._run.lock:
            super().take(batch)

    def shows(self, tag: str) -> bool:
        """Whether there is a value with this recorded tag."""
        with self._run.lock:
            return super().shows(tag)

    def put_graph(self, record: Record, graph: Any, kind: str = COMPUTATION) -> None:
        """Shows a graph, unless the same graph is shown already."""
        with self._run.lock:
            super().put_graph(record, graph, kind)

    def settle(self) -> None:
        """Shows all values so far, the best ones, and their layout as custom scalars."""
        with self._run.lock:
            self._pass_on(self._buffer.flush())
            for found, points in self._new_best():
                series = self._scalars(points[0], BEST_KIND)
                steps, wall_times, values = map(np.array, zip(*found, strict=True))
                series.forget(int(steps[0]))
                series.extend(steps, wall_times, values)
            tags = self._tags.of("scalars")
            if len(tags) != self._laid_out:
                self._laid_out = len(tags)
                point = layout_point(tags, evaluation=self.is_evaluation)
                if point is not None:
                    self.show(0, float(self._stamp), "layout", point)

    def show(self, step: int, wall_time: float, kind: str, point: Point) -> None:
        """Shows the point of a series that has one point only, instead of an earlier one."""
        with self._run.lock:
            self._pass_on(self._buffer.flush())
            self._run.begin(wall_time)
            tag, _ = self._tags.name(point, kind)
            self._run.of(point.plugin.name)[tag] = FixedSeries(step, wall_time, point)

    def show_ranks(self, text: Point, histories: list[History]) -> None:
        """Shows what all ranks have in common; a picture is drawn when it is asked for."""
        step = max(int(each.steps[-1]) for each in histories)
        wall_time = max(each.wall_time for each in histories)
        with self._run.lock:
            self.show(step, wall_time, _RANKS, text)
            for history in histories:
                tag, _ = self._tags.name(Point(heat_map_tag(history), IMAGES, None), _RANKS)
                self._run.of(IMAGES.name)[tag] = PictureSeries(step, wall_time, history)

    def _restart(self, restart: Restart) -> None:
        self._run.forget(restart.step)
        for record in restart.again:
            self._write_record(record)

    def _write_batch(self, batch: Batch) -> None:
        """Adds records: series that are shown as they were recorded in columns, others one by one.

        Whether a series is one of them is known from its first record on, or before that if it is
        of scalars. Unlike in an event file, the order of the series does not matter.
        """
        while (count := len(batch)) > 1:
            self._name_scalars(batch)
            apart = {
                each: span.place
                for each, span in batch.series().items()
                if not self._is_framed(*each)
            }
            new = min((apart[each] for each in apart.keys() - self._converted), default=count)
            part = batch.part(0, new)
            framed = part.series().keys() - apart.keys()
            if framed:
                columns = part.only(framed)
                self._write_framed(columns)
                for (kind, _), span in columns.series().items():
                    self._report.exported[kind] += span.values
            for record in part.only(apart).records():
                self._write_record(record)
            for record in batch.part(new, new + 1).records() if new < count else ():
                self._write_record(record)
            self._converted.update(each for each in apart if apart[each] == new)
            batch = batch.part(new + 1, count) if new < count else batch.part(0, 0)
        for record in batch.records():
            self._write_record(record)

    def _name_scalars(self, batch: Batch) -> None:
        """Names new series of scalars, up to a new series of another kind: the order counts."""
        new = [
            (span.place, each)
            for each, span in batch.series().items()
            if each not in self._converted and not self._is_framed(*each)
        ]
        for _, (kind, tag) in sorted(new, key=operator.itemgetter(0)):
            if kind != SCALAR:
                return
            shown, _ = self._tags.name(Point(tag, SCALARS, None), kind)
            if shown != tag:
                self._converted.add((kind, tag))

    def _write_framed(self, batch: Batch) -> bool:
        self._run.begin(float(batch.wall_times[0]))
        # A block has a tag several times, once for each layout of records.
        scalars = self._run.of("scalars")
        for tag, (_, _, steps, wall_times, values) in by_tag(concatenated([batch.scalars()])):
            series = scalars.setdefault(tag, ScalarSeries(SCALARS))
            assert isinstance(series, ScalarSeries)
            series.extend(steps, wall_times, values)
        file = self._run.number(batch.path)
        for (kind, tag), steps, wall_times, offsets in batch.located():
            owner = self._mapper(kind).plugin
            assert owner is not None  # as they are recorded
            stored = self._run.of(owner.name)[tag]
            assert isinstance(stored, StoredSeries)
            stored.extend(steps, wall_times, file, offsets)
        return True

    def _write_points(self, record: Record, points: list[tuple[Recorded, Point]]) -> None:
        self._run.begin(record.wall_time)
        for recorded, point in points:
            if point.value.WhichOneof("value") == "simple_value":
                number = np.array([point.value.simple_value])
                scalars = self._scalars(point, recorded.kind)
                scalars.extend(record.steps, record.wall_times, number)
                continue
            tag, _ = self._tags.name(point, recorded.kind)
            of_plugin = self._run.of(point.plugin.name)
            series = of_plugin.get(tag)
            if series is None:
                series = of_plugin[tag] = StoredSeries(recorded.kind, recorded.tag, point)
            assert isinstance(series, StoredSeries)
            if isinstance(record, MadeRecord):
                file, offset = self._run.keep(recorded)
            else:
                file, offset = self._run.number(record.path), record.offset
            series.extend(record.steps, record.wall_times, file, [offset])

    def _scalars(self, point: Point, kind: str) -> ScalarSeries:
        tag, _ = self._tags.name(point, kind)
        series = self._run.of(point.plugin.name).setdefault(tag, ScalarSeries(point.plugin))
        assert isinstance(series, ScalarSeries)
        return series

    def _write_graph(self, record: Record, serialized: bytes) -> None:
        self._store_graph(record, COMPUTATION, graphs.RUN_GRAPH_NAME, RUN_GRAPH)

    def _write_tagged_graph(self, record: Record, kind: str, tag: str, graph: Any) -> None:
        point = tagged_graph(tag, graph)
        shown, _ = self._tags.name(point, kind)
        self._store_graph(record, kind, shown, point)

    def _store_graph(self, record: Record, kind: str, shown: str, point: Point) -> None:
        self._run.begin(record.wall_time)
        series = StoredSeries(kind, point.tag, point)
        self._run.of(point.plugin.name)[shown] = series
        series.extend([0], record.wall_times, self._run.number(record.path), [record.offset])


class ServedRuns(RunOutputs):
    """The TensorBoard runs of one recorded run, each with its series.

    Attributes:
        served: The TensorBoard runs, by name.
        parameters: The hyper-parameters, as far as they are known.
        totals: The examples that training has seen; of the lowest rank that states them.
    """

    def __init__(
        self, run: Run, names: Names, targets: TargetNames, report: Report, x: str = STEP
    ) -> None:
        """Begins without values.

        Args:
            run: The run.
            names: Assigns names to TensorBoard runs.
            targets: Whether each rank has a sub-run.
            report: Takes what cannot be shown.
            x: What series are shown over, one of `AXES`.
        """
        super().__init__(run, names, targets)
        self.parameters: dict[str, Plain] = {}
        self.totals = Totals()
        self._x = x
        self.served: dict[str, ServedRun] = {}
        self._outputs: dict[str, ServedOutput] = {}
        self._report = report

    def main(self) -> list[ServedRun]:
        """Returns the TensorBoard run of the run itself, and that of its first rank."""
        ranks = [name for key, name in self.targets.names.items() if key.startswith("rank ")]
        names = dict.fromkeys((self.run.name, *ranks[:1]))
        return [self.served[name] for name in names if name in self.served]

    def session(self) -> ServedOutput:
        """Returns the TensorBoard run of the run itself; HParams shows it as a session."""
        return self._open(self.run.name)

    def writer(self, rank: int, number: int = 1) -> ServedOutput:
        """Returns the TensorBoard run of a rank; its further writers have numbers from 2 on."""
        return self._open(self._writer_name(rank, number), rank)

    def settle(self) -> None:
        """Shows all values so far."""
        for each in self._outputs.values():
            each.settle()

    def rest(self) -> None:
        """Drops what is only there to add values; what is shown stays."""
        self._outputs.clear()

    def _open(self, name: str, rank: int | None = None) -> ServedOutput:
        output = self._outputs.get(name)
        if output is None:
            totals = (lambda: self.totals) if self._x == SAMPLES else None
            served = ServedRun(name, lambda path: self.run.file(path), totals)
            self.served[name] = served
            output = ServedOutput(
                *(served, self._stamp(name, rank), self._report),
                is_evaluation=self._is_evaluation(name),
            )
            self._outputs[name] = output
        return output
