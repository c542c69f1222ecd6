"""Dashboard by dashboard: what should be shown against what TensorBoard answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

from tools.acceptance_check.expected import Expected, Shown, status
from tools.tensorboard_pages.server import TensorBoardServer

# What the exporter calls the series that it derives: the one place where this tool knows.
STATISTICS, HEAT_MAP = "{}/statistics", "{}/heat_map"
SURFACE, CONTOUR, VIEW, FACTS = "{}/surface", "{}/contour", "{}/view", "{}/facts"
NON_FINITE: Final = ("nan_count", "pos_inf_count", "neg_inf_count")
LINEAGE: Final = "lineage"
_LAST_HPARAMS_STEP: Final = 2**31 - 1

Runs = dict[str, Expected]
Difference = str
Check = Callable[[Runs, TensorBoardServer], Iterator[tuple[int, list[Difference]]]]
"""Yields, for each thing that is compared, how many values it has, and what is wrong."""


def series(runs: Runs, kind: str) -> Iterator[tuple[str, str, list[Shown]]]:
    """Yields run, tag and values of a kind."""
    for run, each in runs.items():
        for (own, tag), values in each.series.items():
            if own == kind and values:
                yield run, tag, values


def _clashes(runs: Runs, run: str, tag: str, kind: str) -> bool:
    """Whether another kind has the tag, so that one of them is shown under another name."""
    return sum(own == tag for _, own in runs[run].series) > 1 or tag == LINEAGE


def scalars(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    for run, tag, values in _all_scalars(runs):
        answer = server.eventually(lambda r=run, t=tag: _scalar_points(server, r, t))
        wanted = [(v.wall_time, v.step, float(np.float32(v.content))) for v in values]
        yield len(wanted), _differences(f"{run}: {tag!r}", wanted, answer)
    listed = server.get("plugin/scalars/tags")
    wanted_tags = {(run, tag) for run, tag, _ in _all_scalars(runs)}
    found = {(run, tag) for run, tags in listed.items() for tag in tags}
    yield 0, [f"{run}: {tag!r} was not recorded" for run, tag in sorted(found - wanted_tags)]


def _scalar_points(server: TensorBoardServer, run: str, tag: str) -> Any:
    answer = server.get("plugin/scalars/scalars", run=run, tag=tag)
    return answer and [(wall_time, step, float(value)) for wall_time, step, value in answer]


def _all_scalars(runs: Runs) -> Iterator[tuple[str, str, list[Shown]]]:
    for run, tag, values in series(runs, "scalar_value"):
        shown = f"{tag}/scalars" if _shown_later(runs, run, tag, "scalar_value") else tag
        yield run, shown, values
    for run, tag, values in series(runs, "histogram"):
        for name in NON_FINITE:
            counts = [Shown(v.step, v.wall_time, getattr(v.content, name)) for v in values]
            begun = next((i for i, each in enumerate(counts) if each.content), None)
            if begun is not None:
                wanted = f"{tag}/{name}"
                taken = ("scalar_value", wanted) in runs[run].series
                yield run, f"{wanted}/scalars" if taken else wanted, counts[begun:]


def _shown_later(runs: Runs, run: str, tag: str, kind: str) -> bool:
    """Whether the tag was taken by a series of another kind before."""
    first = next(own for own, other in runs[run].series if other == tag)
    return first != kind or (tag == LINEAGE and False)


def histograms(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    for run, tag, values in series(runs, "histogram"):
        shown = f"{tag}/histograms" if _shown_later(runs, run, tag, "histogram") else tag
        answer = server.histograms(run, shown)
        wrong = _differences(
            f"{run}: {shown!r}",
            [(v.wall_time, v.step) for v in values],
            [(wall_time, step) for wall_time, step, _ in answer],
        )
        if not wrong:
            for value, (_, step, buckets) in zip(values, answer, strict=True):
                wrong += _bucket_differences(f"{run}: {shown!r}, step {step}", value, buckets)
        yield len(values), wrong


def _bucket_differences(where: str, value: Shown, buckets: Any) -> list[Difference]:
    histogram = value.content
    finite = sum(bucket.count for bucket in histogram.buckets if bucket.count > 0)
    found = sum(count for _, _, count in buckets)
    if found != finite:
        return [f"{where}: {finite} values were recorded, {found} are shown"]
    if finite and buckets:
        bounds = (buckets[0][0], buckets[-1][1])
        if not np.allclose(bounds, (histogram.min, histogram.max), rtol=1e-5, atol=1e-30):
            return [f"{where}: {histogram.min} to {histogram.max} were recorded, not {bounds}"]
    return []


def tensors(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    for run, tag, values in series(runs, "tensor"):
        shape = tuple(values[0].content.dims)
        if math.prod(shape) == 1:
            continue
        wanted = [(v.wall_time, v.step) for v in values]
        histogram = server.histograms(run, tag)
        wrong = _differences(f"{run}: {tag!r}", wanted, [(w, s) for w, s, _ in histogram])
        for value, (_, step, buckets) in zip(values, histogram, strict=False):
            numbers = np.array(value.content.float_data, np.float64)
            finite = numbers[np.isfinite(numbers)]
            if sum(count for _, _, count in buckets) != finite.size:
                wrong.append(f"{run}: {tag!r}, step {step}: not {finite.size} elements")
        texts = server.texts(run, STATISTICS.format(tag))
        steps = [text["step"] for text in texts]
        wrong += _differences(f"{run}: table of {tag!r}", [v.step for v in values], steps)
        shown_shape = " × ".join(map(str, shape))
        wrong += [
            f"{run}: no shape {shown_shape} in the table"
            for t in texts
            if shown_shape not in t["text"]
        ]
        if len(shape) == 2:
            images = _images(server, run, HEAT_MAP.format(tag))
            steps = [step for step, _ in images]
            wrong += _differences(f"{run}: picture of {tag!r}", [v.step for v in values], steps)
        yield len(values), wrong


def images(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    for run, tag, values in series(runs, "image"):
        wanted = [(v.step, v.content.encoded_image) for v in values]
        yield len(wanted), _differences(f"{run}: {tag!r}", wanted, _images(server, run, tag))


def _images(server: TensorBoardServer, run: str, tag: str) -> list[tuple[int, bytes]]:
    entries = server.eventually(lambda: server.get("plugin/images/images", run=run, tag=tag))
    return [
        (each["step"], server.fetch(f"plugin/images/individualImage?{each['query']}"))
        for each in entries
    ]


def graphs(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    info = server.get("plugin/graphs/info")
    for run, each in runs.items():
        tags = info.get(run, {}).get("tags", {})
        has_graph = info.get(run, {}).get("run_graph", False)
        if has_graph != bool(each.graphs):
            yield 1, [f"{run}: {len(each.graphs)} graphs were recorded, shown: {has_graph}"]
            continue
        # A graph that reads like the first one is not shown a second time.
        most = len(each.dataset_graphs) + max(len(each.graphs) - 1, 0)
        if not bool(each.dataset_graphs) <= len(tags) <= most:
            yield 1, [f"{run}: other tagged graphs than recorded: {sorted(tags)}"]
        if each.graphs:
            yield _graph_differences(run, each.graphs[0], _graph(server, run))
        for tag, graph in zip(
            sorted(t for t in tags if "dataset" in t), each.dataset_graphs, strict=False
        ):
            kinds = {node.op for node in _graph(server, run, tag=tag).node}
            wanted = set(_dataset_kinds(graph))
            yield len(wanted), [f"{run}: {kind} is not shown" for kind in wanted - kinds]


def _graph(server: TensorBoardServer, run: str, **tag: str) -> Any:
    return text_format.Parse(server.fetch_query("plugin/graphs/graph", run=run, **tag), GraphDef())


def _graph_differences(run: str, graph: Any, shown: Any) -> tuple[int, list[Difference]]:
    names = {node.name for node in shown.node}
    leaves = {name.rpartition("/")[2] for name in names}
    read = {source.lstrip("^") for node in shown.node for source in node.input}
    operators = {node.full_name for node in graph.node}
    parameters = {parameter.name for parameter in graph.parameters}
    wrong = [f"{run}: operator {name} is not shown" for name in sorted(operators - names)]
    wrong += [f"{run}: parameter {name} is not shown" for name in sorted(parameters - leaves)]
    wrong += [f"{run}: {name} is read and not shown" for name in sorted(read - names)]
    constants = [node for node in shown.node if node.op == "Const"]
    if len(constants) < len(graph.const_vals):
        wrong.append(f"{run}: {len(graph.const_vals)} constants, {len(constants)} are shown")
    return len(graph.node) + len(graph.parameters) + len(graph.const_vals), wrong


def _dataset_kinds(graph: Any) -> Iterator[str]:
    yield graph.parameter.mapStr["op_type"]
    for child in graph.children:
        yield from _dataset_kinds(child)


def hparams(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    sessions = server.sessions()
    for run, each in runs.items():
        if each.lineage is None:
            continue
        if _furthest(runs, run) > _LAST_HPARAMS_STEP:
            yield 1, [f"{run}: would break the page"] if run in sessions else []
            continue
        if run not in sessions:
            yield 1, [f"{run}: no session is shown"]
            continue
        shown = sessions[run]
        wanted = _hyper_parameters(each.lineage)
        found = shown["hparams"]
        wrong = [
            f"{run}: {n} is {found.get(n)!r}, not {v!r}"
            for n, v in wanted.items()
            if not _same(found.get(n), v)
        ]
        wrong += [f"{run}: {name} was not recorded" for name in found if name not in wanted]
        state = shown["sessions"][-1]["status"]
        if state != status(each.lineage):
            wrong.append(f"{run}: the status is {state}, not {status(each.lineage)}")
        if not any(LINEAGE in tag for tag in server.get("plugin/text/tags").get(run, ())):
            wrong.append(f"{run}: no text of the lineage")
        yield len(wanted) + 2, wrong


def _furthest(runs: Runs, run: str) -> int:
    steps = (
        abs(value.step)
        for name, each in runs.items()
        if name == run or name.startswith(f"{run}/")
        for values in each.series.values()
        for value in values
    )
    return max(steps, default=0)


def _hyper_parameters(lineage: dict[str, Any]) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    train = lineage.get("train")
    if train is not None:
        hyper, data, state = train.hyper_parameters, train.train_dataset, train.run_state
        wanted["network"] = train.algorithm.network
        for name in ("optimizer", "loss_function", "parallel_mode", "learning_rate"):
            wanted[name] = getattr(hyper, name)
        wanted["epoch"] = hyper.epoch
        wanted["device_num"] = hyper.device_num
        wanted["batch_size"] = state.batch_size or hyper.batch_size
        wanted["train_dataset_path"] = data.train_dataset_path
        wanted["train_dataset_size"] = state.dataset_size or data.train_dataset_size
        stated = {f.name for m in (train.algorithm, hyper, data) for f, _ in m.ListFields()}
        stated |= {"batch_size"} if state.batch_size else set()
        stated |= {"train_dataset_size"} if state.dataset_size else set()
        wanted = {n: v for n, v in wanted.items() if n in stated and v != ""}
    for name, value in lineage["custom"].items():
        wanted[f"custom.{name}" if name in wanted else name] = value
    return wanted


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return bool(found == wanted)
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return found == str(wanted)
    return isinstance(found, int | float | str) and math.isclose(float(found), wanted, rel_tol=1e-6)


def landscapes(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    listed = server.get("plugin/mesh/tags")
    for run, tag, values in series(runs, "loss_landscape"):
        name = SURFACE.format(tag)
        where, wrong = f"{run}: {tag!r}", []
        if name not in listed.get(run, {}):
            yield 1, [f"{where}: no mesh is shown"]
            continue
        [value] = values
        place = {"run": run, "tag": name, "sample": "0"}
        steps = {each["step"] for each in server.get("plugin/mesh/meshes", **place)}
        if steps != {value.step}:
            wrong.append(f"{where}: shown at the steps {steps}, not {value.step}")
        place["step"] = str(value.step)
        parts = {
            kind: server.fetch_query("plugin/mesh/data", **place, content_type=kind)
            for kind in ("VERTEX", "FACE", "COLOR")
        }
        wrong += _mesh_differences(where, value.content.landscape, parts)
        for picture in (CONTOUR, VIEW):
            [(_, data)] = _images(server, run, picture.format(tag))
            if not data.startswith(b"\x89PNG"):
                wrong.append(f"{where}: {picture} is no PNG")
        [text] = server.texts(run, FACTS.format(tag))
        if value.content.metadata.decomposition not in text["text"]:
            wrong.append(f"{where}: the table does not name the method")
        yield value.content.landscape.z.dims[0] * value.content.landscape.z.dims[1], wrong


def _mesh_differences(where: str, surface: Any, parts: dict[str, bytes]) -> list[Difference]:
    """Vertices must be the grid's points, turned and scaled: an affine map of x, y and loss."""
    x, y = np.array(surface.x.float_data), np.array(surface.y.float_data)
    z = np.array(surface.z.float_data).reshape(len(y), len(x))
    vertices = np.frombuffer(parts["VERTEX"], "<f4").reshape(-1, 3)
    if len(vertices) < z.size or np.frombuffer(parts["COLOR"], np.uint8).size != vertices.size:
        return [f"{where}: {len(vertices)} vertices for {z.size} points"]
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    for losses in (z, np.log(np.where(z > 0, z, 1))):
        inputs = np.column_stack([grid, losses.reshape(-1), np.ones(z.size)])
        found = vertices[: z.size]
        fit = inputs @ np.linalg.lstsq(inputs, found, rcond=None)[0]
        if np.abs(fit - found).max() < 1e-3:
            return []
    return [f"{where}: the mesh is not the recorded surface"]


def layout(runs: Runs, server: TensorBoardServer) -> Iterator[tuple[int, list[Difference]]]:
    charts = [
        (chart["title"], pattern)
        for category in (server.get("plugin/custom_scalars/layout") or {}).get("category", [])
        for chart in category["chart"]
        for pattern in chart["multiline"]["tag"]
    ]
    for title, pattern in charts:
        shown = any(
            server.get("plugin/custom_scalars/scalars", run=run, tag=pattern)["tag_to_events"]
            for run in runs
        )
        yield 1, [] if shown else [f"the chart {title} is empty"]


CHECKS: Final[dict[str, Check]] = {
    "scalars": scalars,
    "histograms": histograms,
    "images": images,
    "tensors": tensors,
    "graphs": graphs,
    "hparams, text": hparams,
    "landscapes": landscapes,
    "custom scalars": layout,
}


def _differences(where: str, wanted: list[Any], found: Any) -> list[Difference]:
    """Compares values in order; NaN equals NaN."""
    if len(wanted) != len(found):
        return [f"{where}: {len(wanted)} values were recorded, {len(found)} are shown"]
    return [
        f"{where}: {_short(ours)} was recorded, {_short(theirs)} is shown"
        for ours, theirs in zip(wanted, found, strict=True)
        if not _equal(ours, theirs)
    ]


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, tuple):
        return all(_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, float) and math.isnan(ours):
        return math.isnan(float(theirs))
    return bool(ours == theirs)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 100 else f"{text[:100]}…"
