"""The Text dashboard: every row of every table."""

from __future__ import annotations

import datetime
import html.parser
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rec_summary._pb import anf_ir_pb2
from rec_summary._pb.lineage_pb2 import RunState
from tools.checks.acceptance import parameters, series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Rank, Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "text"

_ENDLESS: Final = 2**31 - 1  # steps of an epoch, where there are no epochs

Rows = Iterator[tuple[str, str, Any]]
"""Title of the table, name, value."""


def expected(records: Records) -> Items:
    """Yields cells by run, tag, step, title and name."""
    for point in series.points(records, "text"):
        make = _MAKERS[point.value.kind]
        yield (*point.key, "", ""), point.value.wall_time
        for name, value in make(point.value.message):
            yield (*point.key, "", name), value
    for run in records:
        tags = series.lineage_tags(run)
        described = [rank for rank in run.ranks if rank.has_lineage]
        for (home, tag), rank in zip(tags.items(), described, strict=True):
            yield (home, tag, run.reached, "", ""), rank.last_lineage
            for title, name, value in _lineage(rank):
                yield (home, tag, run.reached, title, name), value


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, tags in server.get("plugin/text/tags").items():
        for tag in tags:
            for each in server.texts(run, tag):
                yield (run, tag, each["step"], "", ""), each["wall_time"]
                tables = _Tables(each["text"])
                for title, name, value in tables.rows:
                    yield (run, tag, each["step"], title, name), value


def same(expected: Any, shown: Any) -> bool:
    """Whether a cell says what it is to say: the same words, numbers to six digits."""
    if not isinstance(shown, str):
        return bool(expected == shown)
    if isinstance(expected, float):
        return _is_number(shown) and bool(np.isclose(float(shown), expected, rtol=2e-5, atol=1e-30))
    if isinstance(expected, tuple):
        found = re.findall(r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|inf|nan)", shown)
        return len(found) == len(expected) and all(
            np.isclose(float(text), number, rtol=2e-3, atol=1e-30, equal_nan=True)
            for text, number in zip(found, expected, strict=True)
        )
    return " ".join(str(expected).split()) == " ".join(shown.split())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _statistics(message: Any) -> Iterator[tuple[str, Any]]:
    numbers = series.array(message.tensor)
    assert numbers is not None  # or it would have no points
    yield "shape", " × ".join(map(str, numbers.shape)) or "a single number"
    yield "type", anf_ir_pb2.DataType.Name(message.tensor.data_type).removeprefix("DT_").lower()
    yield "elements", f"{numbers.size:,}"
    if not numbers.size:
        return
    wide = numbers.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    if finite.size:
        yield "minimum", float(finite.min())
        yield "maximum", float(finite.max())
        yield "mean", float(finite.mean())
        yield "standard deviation", float(finite.std())
        yield "median", float(np.median(finite))
        yield "L2 norm", float(np.linalg.norm(finite))
    yield "zeros", f"{int((wide == 0).sum()):,}"
    counts = series.non_finite(wide)
    if nans := counts["nan_count"]:
        yield "NaN", f"{nans:,}"
    if infinite := counts["pos_inf_count"] + counts["neg_inf_count"]:
        yield "infinite", f"{infinite:,}"
    yield "first elements", tuple(wide[:20])


def _rates(message: Any) -> Iterator[tuple[str, Any]]:
    curve = message.reliability
    for predicted, observed, weight in zip(
        curve.predicted, curve.observed, curve.weights, strict=True
    ):
        yield f"predicted {predicted:.6g}", (observed, weight)


def _frequencies(message: Any) -> Iterator[tuple[str, Any]]:
    top = message.top_ids
    for place, (number, count, low, high) in enumerate(
        zip(top.ids, top.counts, top.low, top.high, strict=True), 1
    ):
        bounds = f" ({low:,.0f} to {high:,.0f})" if low != high else ""
        yield f"{place}. id {number}", f"{count:,.0f}{bounds}"


def _facts(message: Any) -> Iterator[tuple[str, Any]]:
    landscape = message.loss_landscape
    metadata, path = landscape.metadata, landscape.loss_path
    yield "plane", metadata.decomposition
    if metadata.explained_variance:
        shares = [f"{share:.1%}" for share in metadata.explained_variance]
        yield "explained variance of the path", " and ".join(shares)
    if metadata.eigenvalues:
        yield "eigenvalues", tuple(metadata.eigenvalues)
    if metadata.HasField("seed"):
        yield "seed", str(metadata.seed)
    if metadata.moved:
        words = f"{metadata.moved:,} ({metadata.selection or 'all'})"
        yield "parameters that move", words
    if metadata.samples:
        yield "samples", f"{metadata.samples:,}"
    if path.intervals:
        yield f"{metadata.unit}s", tuple(path.intervals)
    if 0 < metadata.step_per_epoch < _ENDLESS:
        yield "steps per epoch", str(metadata.step_per_epoch)
    x, y = (np.array(getattr(landscape.landscape, name).float_data) for name in "xy")
    z = np.array(landscape.landscape.z.float_data).reshape(y.size, x.size)
    yield "grid", f"{x.size} × {y.size} points"
    finite = np.isfinite(z)
    if not finite.all():
        yield "points without a finite loss", f"{int((~finite).sum()):,}"
    if finite.any():
        row, column = np.argwhere(z == z[finite].min())[0]
        yield "least loss", (z[row, column], x[column], y[row])
        yield "greatest loss", float(z[finite].max())
    if losses := path.points.z.float_data:
        yield "loss at the start of the path", losses[0]
        yield "loss at the end of the path", losses[-1]
    end = landscape.convergence_point
    if end.z.float_data:
        place = (end.z.float_data[0], end.x.float_data[0], end.y.float_data[0])
        yield "loss where training had converged", place


def _lineage(rank: Rank) -> Rows:
    if rank.train is not None:
        yield from (("Run", name, value) for name, value in _run(*rank.train))
    for name, value in parameters.in_own_table(rank).items():
        yield "Hyper-parameters", name, value
    yield from (("Data", name, value) for name, value in _data(rank))
    if rank.train is not None:
        yield from (("Model", name, value) for name, value in _model(rank.train[0]))
    for name, value in rank.custom.items():
        yield "Custom data", name, str(value)
    if rank.evaluations:
        yield "Evaluation", "evaluations", str(len(rank.evaluations))
        last = {name: (e.step, v) for e in rank.evaluations for name, v in e.metrics.items()}
        for name, (step, value) in last.items():
            number = isinstance(value, float) and np.isfinite(value)
            text = value if number else str(value).replace("nan", "NaN")
            yield "Evaluation", f"{name} (step {step})", text


def _run(train: Any, wall_time: float) -> Iterator[tuple[str, Any]]:
    state = train.run_state
    status = state.status if train.HasField("run_state") else RunState.FINISHED
    yield "status", RunState.Status.Name(status)
    if state.reason:
        yield "reason", state.reason
    for name in ("step", "epoch", "samples"):
        if state.HasField(name):
            yield name, str(getattr(state, name))
    if state.HasField("start_time"):
        yield "start", _moment(state.start_time)
    yield "last update", _moment(wall_time)
    for name, text in (
        ("host", state.host),
        ("process", str(state.pid) if state.HasField("pid") else ""),
        ("rank", f"{state.rank} of {state.rank_size}" if state.HasField("rank_size") else ""),
        ("MindSpore", state.mindspore_version),
        ("rec_summary", state.rec_summary_version),
    ):
        if text:
            yield name, text
    for name, count in state.troubles.items():
        yield f"trouble: {name}", str(count)


def _data(rank: Rank) -> Iterator[tuple[str, Any]]:
    if rank.train is not None:
        found, state = parameters.recorded(rank), rank.train[0].run_state
        if "train_dataset_path" in found:
            yield "training data", found["train_dataset_path"]
        if state.unbounded:
            yield "training samples", "unbounded stream"
        elif "train_dataset_size" in found:
            yield "training samples", str(found["train_dataset_size"])
    sets = [each.message for each in rank.evaluations if each.message.HasField("valid_dataset")]
    if sets:
        data = sets[-1].valid_dataset
        if data.valid_dataset_path:
            yield "validation data", data.valid_dataset_path
        size = max(sets[-1].valid_dataset_size64, data.valid_dataset_size)
        yield "validation samples", str(size)


def _model(train: Any) -> Iterator[tuple[str, Any]]:
    if train.algorithm.network:
        yield "network", train.algorithm.network
    if train.algorithm.HasField("loss"):
        yield "last loss", train.algorithm.loss
    if train.model.path:
        yield "checkpoint", train.model.path
    if train.model.HasField("size"):
        yield "checkpoint bytes", str(train.model.size)


def _moment(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


class _Tables(html.parser.HTMLParser):
    """Reads tables of two columns, each below a title or none.

    Attributes:
        rows: Title, first cell and second cell of each row.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[tuple[str, str, str]] = []
        self._title = ""
        self._cells: list[str] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "h3":
            self._title, self._within = "", tag
        elif tag == "tr":
            self._cells = []
        elif tag == "td":
            self._cells.append("")
            self._within = tag
        elif tag == "br" and self._within == "td":
            self._cells[-1] += "\n"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h3", "td"):
            self._within = ""
        elif tag == "tr" and self._cells:
            name, *rest = self._cells
            self.rows.append((self._title, name, " | ".join(rest)))

    def handle_data(self, data: str) -> None:
        if self._within == "h3":
            self._title += data
        elif self._within == "td":
            self._cells[-1] += data


_MAKERS = {
    "tensor": _statistics,
    "loss_landscape": _facts,
    "reliability": _rates,
    "top_ids": _frequencies,
}
