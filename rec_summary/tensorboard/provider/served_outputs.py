"""What adds the values of a recorded run to the TensorBoard runs that are served."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.graph import metadata as graphs

from rec_summary.records.reading.runs import Run
from rec_summary.records.reading.totals import Totals
from rec_summary.series.batch import SCALAR, Batch, Record, Recorded, Series, by_tag
from rec_summary.series.comparison.samples import SAMPLES, STEP
from rec_summary.series.cuts import Cut
from rec_summary.series.lineage import Plain
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs import TAGGED_GRAPHS, tagged_graph
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import SCALARS, Point, plugin, tensor_value
from rec_summary.tensorboard.outputs import BEST_KIND, OutputState, RunOutput, RunOutputs
from rec_summary.tensorboard.provider.served_run import (
    RecordStore,
    ScalarSeries,
    ServedRun,
    SingleSeries,
    StoredSeries,
)
from rec_summary.tensorboard.run_names import Names, TargetNames

_RUN_GRAPH: Final = plugin(graphs.PLUGIN_NAME, summary_pb2.DATA_CLASS_BLOB_SEQUENCE)


class ServedOutput(RunOutput):
    """Adds values to one TensorBoard run, while others read it."""

    def __init__(
        self,
        run: ServedRun,
        stamp: int,
        store: RecordStore,
        report: Report,
        *,
        is_evaluation: bool,
        directions: Mapping[str, str],
    ) -> None:
        """Begins empty.

        Args:
            run: The run.
            stamp: When its records were begun, in whole seconds.
            store: Has the records that series refer to.
            report: Takes what cannot be shown.
            is_evaluation: Whether its scalars are metrics of evaluations.
            directions: Which values of metrics are better, as the run states it.
        """
        super().__init__(
            *(run.name, report, EVERYTHING, OutputState()),
            is_evaluation=is_evaluation,
            directions=directions,
            lock=run.lock,
        )
        self._run = run
        self._stamp = stamp
        self._store = store
        self._laid_out = 0
        self._converted: set[Series] = set()  # series that have a name, and are converted

    def settle(self) -> None:
        """Shows all values so far, the best ones, and their layout as custom scalars."""
        with self._lock:
            self._pass_on(self._buffer.flush())
            for tag, points in self._new_best():
                series = self._scalars(tag, BEST_KIND)
                steps, wall_times, values = map(np.array, zip(*points, strict=True))
                series.forget(int(steps[0]))
                series.extend(steps, wall_times, values)
            tags = self._tags.of("scalars")
            if len(tags) != self._laid_out:
                self._laid_out = len(tags)
                point = layout_point(tags, evaluation=self.is_evaluation)
                if point is not None:
                    self.put(0, float(self._stamp), "layout", [point])

    def put(self, step: int, wall_time: float, kind: str, points: list[Point]) -> None:
        """Shows points that describe the run, instead of earlier ones."""
        with self._lock:
            self._pass_on(self._buffer.flush())
            self._run.begin(wall_time)
            for point in points:
                tag, _ = self._tags.name(point, kind)
                of_plugin = self._run.of_plugin(point.plugin.name)
                of_plugin[tag] = SingleSeries(step, wall_time, point)

    def _restart(self, cut: Cut, again: list[Record]) -> None:
        self._run.forget(cut.step)
        for record in again:
            self._write_record(record)

    def _pass_batch(self, batch: Batch) -> None:
        """Adds records: scalars and what is shown as it was recorded in columns, others one by one.

        The first record of a series gives it its tag, that of scalars before they are added.
        Unlike in an event file, only the order of the tags matters.
        """
        single = 1  # records that are added one by one: twice as many where series begin densely
        while (count := len(batch)) > 1:
            apart = {
                series: span.first_row
                for series, span in batch.series().items()
                if not self._is_column(*series)
            }
            others = {series for series in apart if series[0] != SCALAR}
            new = min((apart[series] for series in others - self._converted), default=count)
            part = batch.part(0, new)
            if len(others) < len(apart):
                self._name_scalars(part)
            columns = part.series().keys() - others
            if columns:
                self._add_columns(part.only(columns))
            for record in part.only(others).records() if others else ():
                self._write_record(record)
            if new == count:
                return
            reached = min(new + single, count)
            for record in batch.part(new, reached).records():
                self._write_record(record)
            self._converted.update(series for series, row in apart.items() if row < reached)
            batch = batch.part(reached, count)
            single = 2 * single if new <= single else 1
        for record in batch.records():
            self._write_record(record)

    def _name_scalars(self, batch: Batch) -> None:
        """Gives tags to the series of scalars, in the order in which they begin."""
        codes, begins = np.unique(batch.table.codes, return_index=True)
        for code in codes[begins.argsort()].tolist():
            kind, tag = batch.table.series[code]
            if kind == SCALAR:
                self._scalars(tag, kind)

    def _is_column(self, kind: str, tag: str) -> bool:
        """Whether the values of a series are added in columns."""
        if kind == SCALAR:
            return self._tags.shown(tag, SCALARS.name, kind) is not None
        return self._is_framed(kind, tag)

    def _add_columns(self, batch: Batch) -> None:
        self._run.begin(float(batch.wall_times[0]))
        for tag, (_, _, steps, wall_times, values) in by_tag(batch.scalars()):
            self._scalars(tag, SCALAR).extend(steps, wall_times, values)
        file = self._store.number(batch.path)
        for (kind, tag), steps, wall_times, offsets in batch.located():
            owner = self._mapper(kind).plugin
            assert owner is not None  # one plugin shows them as they were recorded
            stored = self._run.of_plugin(owner.name)[tag]
            stored.extend(steps, wall_times, file, offsets)
        for (kind, _), span in batch.series().items():
            self._report.exported[kind] += span.values

    def _write_points(self, record: Record, points: list[tuple[Recorded, Point]]) -> None:
        self._run.begin(record.wall_time)
        steps, wall_times = record.steps, record.wall_times
        for recorded, point in points:
            if point.plugin is SCALARS:
                number = np.array([point.value.simple_value])
                scalars = self._scalars(point.tag, recorded.kind)
                scalars.extend(steps, wall_times, number)
                continue
            tag, _ = self._tags.name(point, recorded.kind)
            of_plugin = self._run.of_plugin(point.plugin.name)
            series = of_plugin.get(tag)
            if series is None:
                series = StoredSeries(self._store, recorded.kind, recorded.tag, point)
                of_plugin[tag] = series
            file, offset = self._store.add(record)
            series.extend(steps, wall_times, file, [offset])

    def _scalars(self, tag: str, kind: str) -> ScalarSeries:
        """Returns the series of the scalars that are made of values of a kind."""
        shown_tag, _ = self._tags.name(Point(tag, SCALARS, None), kind)
        series: ScalarSeries = self._run.of_plugin(SCALARS.name).setdefault(
            shown_tag, ScalarSeries()
        )
        return series

    def _write_graph(self, record: Record, graph: Any, kind: str, tag: str | None) -> None:
        owner, shown_tag = _RUN_GRAPH, graphs.RUN_GRAPH_NAME
        if tag is not None:
            owner = TAGGED_GRAPHS
            shown_tag, _ = self._tags.name(Point(tag, owner, None), kind)
        self._run.begin(record.wall_time)
        make = functools.partial(_graph, self._store, *self._store.add(record), tag)
        point = Point(shown_tag, owner, make)
        self._run.of_plugin(owner.name)[shown_tag] = SingleSeries(0, record.wall_time, point)


def _graph(store: RecordStore, file: int, offset: int, tag: str | None) -> Any:
    """Returns the value of a graph that is read from its record.

    Raises:
        ValueError: It cannot be read any more.
    """
    record = store.read(file, offset)
    if record is None or record.kind not in dashboards.GRAPHS:
        raise ValueError("the file is another one now")
    graph = dashboards.GRAPHS[record.kind](getattr(record.event, record.kind))
    if tag is None:
        return tensor_value([graph.SerializeToString(deterministic=True)])
    return tagged_graph(tag, graph).value


class ServedRuns(RunOutputs[ServedOutput]):
    """The TensorBoard runs of one recorded run, each with its series.

    Attributes:
        served: The TensorBoard runs, by name.
        parameters: The hyper-parameters, as far as they are known.
        totals: The examples that training has seen; of the lowest rank that states them.
        changed: When its files were last written to, as of the last reading, in seconds since the
            epoch.
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
            x: What series are shown over, `step` or `samples`.
        """
        super().__init__(run, names, targets)
        self.parameters: dict[str, Plain] = {}
        self.totals = Totals()
        self.changed = -math.inf
        self._x = x
        self.served: dict[str, ServedRun] = {}
        self._store = RecordStore(lambda path: self.run.file(path))
        self._report = report

    def main(self) -> list[ServedRun]:
        """Returns the TensorBoard run of the run itself, and that of its first rank."""
        ranks = [name for key, name in self.targets.names.items() if key.startswith("rank ")]
        names = dict.fromkeys((self.run.name, *ranks[:1]))
        return [self.served[name] for name in names if name in self.served]

    def rest(self) -> None:
        """Drops the state that only adding values needs; what is shown stays."""
        self._outputs.clear()

    def _new(self, name: str, stamp: int, *, is_evaluation: bool) -> ServedOutput:
        totals = (lambda: self.totals) if self._x == SAMPLES else None
        run = self.served[name] = ServedRun(name, totals)
        return ServedOutput(
            *(run, stamp, self._store, self._report),
            is_evaluation=is_evaluation,
            directions=self.targets.directions,
        )
