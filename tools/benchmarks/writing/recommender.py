"""What the metrics of recommenders cost: for a large batch, and for two tasks beside TorchRec."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from ..contest import ROOT, Contestant, Settings, alternate, column
from ..results import Row, Target, cost

_ROWS, _TABLES, _BATCH = 100_000, 26, 4096
_TASKS = ("ctr", "cvr")
_WINDOW, _COMPUTED = 100_000, 100  # examples, and steps from one report to the next
_PEER_WINDOW = 10_000_000  # TorchRec's default: its AUC is of all examples of the run, as ours is
_STEP = 0.005  # seconds
_COLUMNS = 8
_PASSES, _PASS = 4, 2e-4  # features in a visit, and the seconds that no check takes
_BLOCK = 200  # steps with or without the metrics
_SLICED, _VALUES = 2, 20  # columns of slices, and their values
Hooks = tuple[Callable[[int], None], Callable[[], None], Callable[[int], None]]
_TORCHREC = ROOT / ".venv-torchrec" / "bin" / "python"


def recommender(settings: Settings) -> tuple[str, list[Row]]:
    """Measures large batches, two tasks beside TorchRec, and what these add to a step of 5 ms."""
    times = settings.size(300, 20)
    steps, long = settings.size(1000, 200), settings.size(4000, 800)
    few = settings.size(300, 200)  # as a report with the default window sorts all examples so far
    windows = (("TorchRec", _WINDOW, steps), ("default window", _PEER_WINDOW, few))
    rounds = alternate(
        [
            Contestant("batch", large_batches, {"times": times}),
            Contestant("ours", two_tasks, {"steps": steps}),
            Contestant("slices", two_tasks, {"steps": steps, "columns": _SLICED}),
            Contestant("served", two_tasks, {"steps": steps, "served": True}),
            *(
                Contestant(name, torchrec_module, {"steps": n, "window": size}, str(_TORCHREC))
                for name, size, n in windows
            ),
            Contestant("step", five_ms, {"steps": long}),
            Contestant("observe", observed, {"times": times}),
            Contestant("passes", passes, {"steps": long}),
            Contestant("incident", kept, {"times": times}),
        ],
        settings,
    )
    setting = (
        f"Two tasks, batches of {_BATCH:,}, {steps:,} steps with pauses of {1000 * _STEP:.0f} ms, "
        f"the metrics of all examples and of the last {_WINDOW:,}, reported every {_COMPUTED} "
        "steps. TorchRec's `RecMetricModule` computes NE, calibration, click rate, AUC and AUPRC "
        "on the training's thread, AUC and AUPRC of the window only. Ours has these, also of all "
        "examples, and the others of docs/recommender.md, with curves in every fourth report. "
        f"With its default window of {_PEER_WINDOW:,}, TorchRec's are of all examples of {few} "
        "steps, and of no shorter window. A step of 5 ms is one product of matrices on one core, "
        f"in {long:,} steps; the metrics are switched on and off in blocks of {_BLOCK}, and a "
        "block is compared with those beside it. "
        f"Columns of slices have {_VALUES} values, and TorchRec has none. "
        f"Large batch: {_BATCH:,} × {_TABLES} ids, predictions, labels and users, passed to "
        f"the step hook {times} times, 20 ms apart, with {_TABLES} tables of {_ROWS:,} rows; the "
        "hook on the training thread, and the CPU time of the writer's thread. `observe`: "
        f"{_COLUMNS} columns of {_BATCH:,} examples in a loop of NumPy, without MindSpore, in turn "
        f"with a copy of them, {times} times; the median of each. Importance: a network of "
        f"{_COLUMNS} tables in graph mode, batches of {_BATCH:,}, {long:,} steps, passes as often "
        "as the default budget allows; the share is of the time after the compilation. Incident: "
        f"{_COLUMNS} columns and three outputs of {_BATCH:,} examples, new Tensors in each of "
        f"{times} steps; with the time in which the oldest batches are released."
    )
    rows = []
    for name, *_ in windows:
        for what, bound in (("training thread", 0.1), ("CPU", 0.5)):
            ours, peer = column(rounds, "ours", what), column(rounds, name, what)
            at_most, which = (bound, "") if name == "TorchRec" else (None, f"; {name}")
            row = f"two tasks: {what}, a step{which}"
            rows.append(cost(row, "ms", ours, peer, "TorchRec", at_most))
    sliced, peer = column(rounds, "slices", "CPU"), column(rounds, "TorchRec", "CPU")
    row = f"two tasks, {_SLICED} columns of slices: CPU, a step"
    rows.append(cost(row, "ms", sliced, peer, "TorchRec", 0.5))
    row, own = "two tasks with served scores: CPU, a step", column(rounds, "ours", "CPU")
    rows.append(cost(row, "ms", column(rounds, "served", "CPU"), own, "without"))
    added = column(rounds, "step", "added")
    rows.append(Row("step of 5 ms: added", "%", added, target=Target("ours", "<=", 3)))
    above = column(rounds, "observe", "above")
    rows.append(Row("observe: above the copies", "µs", above, target=Target("ours", "<=", 20)))
    rows.append(Row("observe: the copies", "µs", column(rounds, "observe", "copies")))
    share = column(rounds, "passes", "share")
    rows.append(Row("importance: passes", "% of the time", share, target=Target("ours", "<=", 1)))
    rows.append(Row("importance: a step", "ms", column(rounds, "passes", "step")))
    rows.append(Row("importance: a pass", "ms", column(rounds, "passes", "pass")))
    every = column(rounds, "passes", "every")
    rows.append(Row(f"importance: steps from pass to pass, {_COLUMNS} features", "", every))
    for each in ("mean", "median"):
        rows.append(Row(f"incident: a step, {each}", "µs", column(rounds, "incident", each)))
    what = ("hook, median", "hook, p99", "hook, largest", "hook CPU, mean", "writer CPU")
    rows += [Row(f"large batch: {each}", "ms", column(rounds, "batch", each)) for each in what]
    return setting, rows


def large_batches(work: str, times: int) -> dict[str, float]:
    """Times the step hook for large batches, with one report every hundred steps."""
    import numpy as np
    from mindspore import Parameter, Tensor, nn

    from rec_summary import RecommenderMetrics

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            for number in range(_TABLES):
                table = Parameter(Tensor(np.ones((_ROWS, 8), np.float32)), name=f"table_{number}")
                self.insert_param_to_cell(f"table_{number}", table)

    random = np.random.default_rng(0)
    network = Network()
    steps = []
    for _ in range(10):
        ids = ((random.zipf(1.2, (_BATCH, _TABLES)) - 1) % _ROWS).astype(np.int32)
        scores = random.random(_BATCH).astype(np.float32)
        labels = (random.random(_BATCH) < scores).astype(np.float32)
        users = random.integers(0, 10_000, _BATCH, dtype=np.int32)
        outputs = (Tensor(np.float32(0)), Tensor(scores), Tensor(labels))
        inputs = [Tensor(ids), Tensor(users)]
        steps.append({"train_dataset_element": inputs, "net_outputs": outputs})
    options = RecommenderMetrics(
        predictions=1,
        labels=2,
        users=1,
        ids={f"table_{number}": (0, number) for number in range(_TABLES)},
    )
    step_of, close, _ = _steps(work, options, steps, network=network, train_network=network)
    thread, wall, began = [], [], time.process_time()
    for step in range(1, times + 1):
        time.sleep(0.02)  # as long as a step of a training, without its use of the processor
        before, cpu = time.perf_counter(), time.thread_time()
        step_of(step)
        thread.append(1000 * (time.thread_time() - cpu))
        wall.append(1000 * (time.perf_counter() - before))
    close()
    wall.sort()
    return {
        "hook, median": statistics.median(wall),
        "hook, p99": wall[int(0.99 * times)],
        "hook, largest": wall[-1],
        "hook CPU, mean": statistics.mean(thread),
        "writer CPU": (1000 * (time.process_time() - began) - sum(thread)) / times,
    }


def observed(work: str, times: int) -> dict[str, float]:
    """Times `SummaryRecord.observe`, in turn with bare copies of the same columns."""
    import numpy as np

    from rec_summary import RecommenderMetrics, SummaryRecord

    random = np.random.default_rng(0)
    features = [f"feature_{number}" for number in range(_COLUMNS - 4)]
    options = RecommenderMetrics(
        predictions="score",
        labels="click",
        users="user",
        slices={"country": "country"},
        features={name: name for name in features},
    )
    batch = {name: random.random(_BATCH).astype(np.float32) for name in ("score", *features)}
    batch["click"] = (random.random(_BATCH) < batch["score"]).astype(np.float32)
    batch["user"] = random.integers(0, 10_000, _BATCH)
    batch["country"] = random.integers(0, 30, _BATCH)
    copies, observes = [], []
    with SummaryRecord(work, recommender=options) as record:
        for step in range(1, times + 1):
            began = time.perf_counter()
            own = [np.array(column) for column in batch.values()]
            copied = time.perf_counter()
            record.observe(**batch)
            ended = time.perf_counter()
            copies.append(1e6 * (copied - began))
            observes.append(1e6 * (ended - copied))
            record.record(step)
            del own
            time.sleep(_STEP)
        if record.troubles:
            raise RuntimeError(f"telemetry failed: {record.troubles}")
    usual = statistics.median(copies)
    return {"copies": usual, "above": statistics.median(observes) - usual}


def passes(work: str, steps: int) -> dict[str, float]:
    """Trains a network with passes for the importance of its features, and times them."""
    import mindspore
    import numpy as np
    from mindspore import Tensor, nn, ops

    from rec_summary import Importance, RecommenderMetrics, TrainStep

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.CellList([nn.Embedding(10_000, 16) for _ in range(_COLUMNS)])
            self.mlp = nn.SequentialCell(
                nn.Dense(16 * _COLUMNS, 64), nn.ReLU(), nn.Dense(64, 32), nn.ReLU(), nn.Dense(32, 1)
            )
            self.loss = nn.BCEWithLogitsLoss()

        def construct(self, *columns: Tensor) -> tuple[Tensor, ...]:
            rows = [self.tables[at](columns[at]) for at in range(_COLUMNS)]
            odds = self.mlp(ops.concat(rows, axis=1)).squeeze(1)
            return self.loss(odds, columns[-1]), ops.sigmoid(odds), columns[-1]

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    network = Network()
    step_network = TrainStep(network, nn.Adam(network.trainable_params()))
    step_network.set_train()
    random = np.random.default_rng(0)
    batches = []
    for _ in range(10):
        ids = [*random.integers(0, 10_000, (_COLUMNS, _BATCH)).astype(np.int32)]
        labels = (random.random(_BATCH) < 0.1).astype(np.float32)
        batches.append([Tensor(column) for column in (*ids, labels)])
    arguments: list[dict[str, Any]] = [
        {"train_dataset_element": batch, "batch_num": 1, "train_network": step_network}
        for batch in batches
    ]
    importance = Importance(every=1, features={f"f{at}": at for at in range(_COLUMNS)})
    options = RecommenderMetrics(predictions=1, labels=2, importance=importance)
    step_of, close, predict = _steps(work, options, arguments, train_network=step_network)
    made: list[float] = []
    began, warm_up = 0.0, steps // 10
    for step in range(1, warm_up + steps + 1):
        if step == warm_up + 1:  # it has compiled
            began, made = time.perf_counter(), []
        before = time.perf_counter()
        predict(step)
        spent = time.perf_counter() - before
        if spent > _PASS:
            made.append(spent)
        own = arguments[step % len(arguments)]
        own["net_outputs"] = step_network(*own["train_dataset_element"])
        step_of(step)
    elapsed = time.perf_counter() - began
    close()
    visits = max(len(made), 1)
    return {
        "share": 100 * sum(made) / elapsed,
        "step": 1000 * (elapsed - sum(made)) / steps,
        "pass": 1000 * statistics.median(made or [0.0]) / (1 + _PASSES),
        "every": steps / visits * _COLUMNS / _PASSES,
    }


def kept(work: str, times: int) -> dict[str, float]:
    """Times what keeps the last batches."""
    import numpy as np
    from mindspore import Tensor

    from rec_summary import Incident
    from rec_summary.records.failures import Troubles
    from rec_summary.training.incidents import Incidents
    from rec_summary.training.recorder import Recorder, RecorderOptions

    random, troubles = np.random.default_rng(0), Troubles()
    recorder = Recorder(RecorderOptions(work), troubles)
    incidents = Incidents(Incident(), [], Tensor, 0, recorder, troubles)
    ids = random.integers(0, 1_000_000, (_COLUMNS, _BATCH))
    scores = random.random((2, _BATCH)).astype(np.float32)
    seconds = []
    for step in range(1, times + 1):
        inputs = [Tensor(column) for column in ids]
        outputs = (Tensor(np.float32(0.5)), *map(Tensor, scores))
        began = time.perf_counter()
        incidents.add(step, inputs, outputs)
        seconds.append(time.perf_counter() - began)
        time.sleep(_STEP)
    incidents.close()
    if troubles.counts:
        raise RuntimeError(f"telemetry failed: {troubles.counts}")
    return {"mean": 1e6 * statistics.mean(seconds), "median": 1e6 * statistics.median(seconds)}


def _scored() -> list[list[Any]]:
    """Returns ten batches: predictions and labels of each task in turn."""
    import numpy as np

    random, batches = np.random.default_rng(0), []
    for _ in range(10):
        arrays = []
        for shift in (2.0, 4.0):
            scores = 1 / (1 + np.exp(shift - random.normal(size=_BATCH)))
            arrays += [scores, random.random(_BATCH) < scores]
        batches.append([array.astype(np.float32) for array in arrays])
    return batches


def torchrec_module(work: str, steps: int, window: int) -> dict[str, float]:
    """Times `RecMetricModule`, all of which is on the training thread."""
    import torch
    from torchrec.metrics.metric_module import RecMetricModule, generate_metric_module
    from torchrec.metrics.metrics_config import (
        MetricsConfig,
        RecMetricDef,
        RecMetricEnum,
        RecTaskInfo,
    )

    torch.set_num_threads(1)
    tasks = [RecTaskInfo(name, f"{name}-l", f"{name}-p", f"{name}-w") for name in _TASKS]
    metric = RecMetricDef(rec_tasks=tasks, window_size=window)
    names = ("NE", "CALIBRATION", "CTR", "AUC", "AUPRC")
    config = MetricsConfig(
        rec_tasks=tasks, rec_metrics={getattr(RecMetricEnum, name): metric for name in names}
    )
    module = generate_metric_module(RecMetricModule, config, _BATCH, 1, 0, {}, torch.device("cpu"))
    batches = []
    for arrays in _scored():
        batch = {}
        for name, scores, labels in zip(_TASKS, arrays[::2], arrays[1::2], strict=True):
            batch[f"{name}-p"], batch[f"{name}-l"] = torch.tensor(scores), torch.tensor(labels)
            batch[f"{name}-w"] = torch.ones(_BATCH)
        batches.append(batch)
    for batch in batches:
        module.update(batch)
    wall, cpu = 0.0, time.process_time()
    for step in range(1, steps + 1):
        began = time.perf_counter()
        module.update(batches[step % len(batches)])
        if step % _COMPUTED == 0:
            module.compute()
        wall += time.perf_counter() - began
        time.sleep(_STEP)
    return {
        "training thread": 1000 * wall / steps,
        "CPU": 1000 * (time.process_time() - cpu) / steps,
    }


def two_tasks(work: str, steps: int, columns: int = 0, served: bool = False) -> dict[str, float]:
    """Times the step hook of two tasks, and the writer's thread behind it."""
    step_of, close, _ = _two_tasks(work, columns, served)
    warm_up, wall = 10, 0.0
    for step in range(1, warm_up + 1):
        step_of(step)
    cpu = time.process_time()
    for step in range(1, steps + 1):
        began = time.perf_counter()
        step_of(warm_up + step)
        wall += time.perf_counter() - began
        time.sleep(_STEP * (1 + columns))  # long enough that no batch is left out
    close()
    return {
        "training thread": 1000 * wall / steps,
        "CPU": 1000 * (time.process_time() - cpu) / steps,
    }


def five_ms(work: str, steps: int) -> dict[str, float]:
    """Times steps of 5 ms with and without the metrics of two tasks, in turn."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is loaded
    import numpy as np

    step_of, close, _ = _two_tasks(work)
    random = np.random.default_rng(0)
    small = random.normal(size=(256, 256)).astype(np.float32)
    began = time.perf_counter()
    for _ in range(200):
        small @ small
    columns = round(256 * _STEP / ((time.perf_counter() - began) / 200))
    wide = random.normal(size=(256, columns)).astype(np.float32)
    blocks = []
    for block in range(steps // _BLOCK):
        began = time.perf_counter()
        for step in range(block * _BLOCK, (block + 1) * _BLOCK):
            small @ wide  # one call without Python's lock, as a step of MindSpore's graph is
            if block % 2 == 1:
                step_of(step + 1)
        blocks.append(time.perf_counter() - began)
    close()
    # A block is compared with those beside it: the pace of a machine changes.
    beside = zip(blocks[0::2], blocks[1::2], blocks[2::2], strict=False)
    added = [with_them / ((before + after) / 2) - 1 for before, with_them, after in beside]
    return {"added": 100 * statistics.median(added)}


def _two_tasks(work: str, columns: int = 0, served: bool = False) -> Hooks:
    """Returns a step with the metrics of two tasks, by some columns, and what ends them."""
    import numpy as np
    from mindspore import Tensor

    from rec_summary import RecommenderMetrics, Task

    options = RecommenderMetrics(
        tasks={
            name: Task(2 * at, 2 * at + 1, served=columns + at if served else None)
            for at, name in enumerate(_TASKS)
        },
        slices={f"column_{at}": at for at in range(columns)},
        last=(_WINDOW,),
        report_steps=_COMPUTED,
        throughput=False,
        host=False,
    )
    batches = [tuple(map(Tensor, arrays)) for arrays in _scored()]
    values = np.random.default_rng(0).integers(0, _VALUES, (columns, _BATCH), np.int32)
    steps = []
    for outputs in batches:
        logged = [outputs[2 * at] * 0.9 for at in range(len(_TASKS))] if served else []
        inputs = [*map(Tensor, values), *logged]
        steps.append({"net_outputs": outputs, "train_dataset_element": inputs, "batch_num": 1})
    return _steps(work, options, steps)


def _steps(work: str, options: Any, steps: list[dict[str, Any]], **begun: Any) -> Hooks:
    """Begins the telemetry of a training.

    Args:
        work: The directory of the records.
        options: What is measured.
        steps: What MindSpore gives a callback in a step; they take turns.
        begun: What it gives at the beginning.

    Returns:
        What the collector does in the step of a number, at the end, and before a step.
    """
    from rec_summary.records.failures import Troubles
    from rec_summary.training.process.ending import this_environment
    from rec_summary.training.recommender.step_reader import StepReader
    from rec_summary.training.recommender.tables import network_tables
    from rec_summary.training.recommender.telemetry import RecommenderTelemetry
    from rec_summary.training.recorder import Recorder, RecorderOptions
    from rec_summary.training.step_view import StepView

    class Context:
        def __init__(self, arguments: dict[str, Any]) -> None:
            self._arguments = arguments

        def original_args(self) -> dict[str, Any]:
            return self._arguments

    troubles = Troubles()
    recorder = Recorder(RecorderOptions(work), troubles)
    recorder.open(0)
    telemetry = RecommenderTelemetry(options, recorder, troubles)
    view = StepView(Context(begun))
    telemetry.begin(
        StepReader(telemetry.roles, view, troubles),
        lambda: network_tables(view.network, telemetry.tables, troubles),
        this_environment(),
        work,
    )
    contexts = [Context(arguments) for arguments in steps]
    views = [StepView(context) for context in contexts]

    def predict(number: int) -> None:
        telemetry.predict(contexts[number % len(contexts)])

    def step_of(number: int) -> None:
        telemetry.begin_step()
        telemetry.end_step(views[number % len(views)], number)

    def close() -> None:
        telemetry.end()
        recorder.close()
        if troubles.counts:
            raise RuntimeError(f"telemetry failed: {troubles.counts}")

    return step_of, close, predict
