"""Which metrics HParams shows of a log directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins.hparams import metadata

from rec_summary._pb.lineage_pb2 import EvaluationLineage, RunState
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME
from rec_summary.tensorboard.event_files.experiment import ExperimentFile
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from tests.support import command, event_files
from tests.support.boards import Pages, event_file_pages, record_pages
from tests.support.following import Follower
from tests.support.record_dirs import custom, event, lineage, scalar, train, tree, write_segment
from tests.support.waiting import eventually
from tools.tensorboard_pages.server import TensorBoardServer

AUC = "recommender/auc/lifetime"
HEALTH = "rec_summary/bytes"


def record(directory: Path, *tags: str, **parameters: Any) -> None:
    values = event(1, *(scalar(tag, 0.5) for tag in (*tags, HEALTH, "learning_rate/auto")))
    described = [lineage(train_lineage=train())]
    if parameters:
        described.append(lineage(user_defined_info=custom(parameters)))
    write_segment(directory, values, *described)


def described(logdir: Path) -> tuple[list[str], set[str]] | None:
    """Returns the metrics and the hyper-parameters of the one description in a log directory."""
    found = sorted((logdir / ".hparams").glob("*/*tfevents*"))
    if not found:
        return None
    [path] = found
    [_, written] = event_files.read_events(path)
    [value] = written.summary.value
    assert value.tag == metadata.EXPERIMENT_TAG
    content = metadata.parse_experiment_plugin_data(value.metadata.plugin_data.content)
    metrics = [f"{each.name.group}/{each.name.tag}".lstrip("/") for each in content.metric_infos]
    return metrics, {each.name for each in content.hparam_infos}


def metrics_of(pages: Pages) -> dict[str, list[str]]:
    return {
        group["name"]: [each["name"]["tag"] for each in group["metricValues"]]
        for group in pages.sessions()
    }


FEW = [AUC, f"recommender_best/{AUC}", "loss"]

_EXPORT = """
import sys
from rec_summary import export_tensorboard
export_tensorboard(*sys.argv[1:])
print([name for name in ("boto3", "fsspec", "tensorboard.data.provider") if name in sys.modules])
"""


def test_without_hyper_parameters_tensorboards_hparams_is_not_loaded(tmp_path: Path) -> None:
    """It takes 20 MB with boto3, which it imports if it is installed."""
    write_segment(tmp_path / "records", event(1, scalar("loss", 0.5)))
    done = command.python(_EXPORT, tmp_path / "records", tmp_path / "logs")
    assert done.stdout == "[]\n", done.stderr


def test_protobuf_in_python_as_mindspore_sets_it(tmp_path: Path) -> None:
    record(tmp_path / "records" / "a", "loss", AUC)
    variables = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = command.run("export", tmp_path / "records", tmp_path / "logs", env=variables)
    assert done.returncode == 0, done.stderr
    assert described(tmp_path / "logs") is not None


@pytest.mark.parametrize("jobs", [1, 2])
def test_hparams_of_event_files_has_the_metrics_that_matter(tmp_path: Path, jobs: int) -> None:
    record(tmp_path / "records" / "a", "loss", AUC)
    record(tmp_path / "records" / "deep" / "b", "loss", AUC, dropout=0.5)
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs", jobs=jobs)
    assert set(report.runs) == {"a", "deep/b"}
    pages = event_file_pages(tmp_path / "logs")
    assert metrics_of(pages) == {"a": FEW, "deep/b": FEW}
    [of_a, of_b] = pages.sessions()
    assert of_b["hparams"] == {**of_a["hparams"], "dropout": 0.5}
    # The same as of records that are served, also beside an export.
    index, _ = record_pages(tmp_path / "records")
    served = RecordDataProvider(index)
    served.other = pages.provider
    assert metrics_of(Pages(served, tmp_path)) == {"a": FEW, "deep/b": FEW}


def test_metrics_are_described_where_all_of_them_are_shown(tmp_path: Path) -> None:
    evaluated = lineage(evaluation_lineage=EvaluationLineage(metric='{"auc": 0.7}'))
    losses = event(1, scalar("loss", 1))
    write_segment(tmp_path / "records" / "a", losses, lineage(train_lineage=train()), evaluated)
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    expected = {"a": ["auc", "recommender_best/auc", "loss"]}
    assert metrics_of(event_file_pages(tmp_path / "logs")) == expected
    assert metrics_of(record_pages(tmp_path / "records")[1]) == expected


def test_a_later_export_describes_all_runs_that_are_there(tmp_path: Path) -> None:
    first, second, logs = tmp_path / "first", tmp_path / "second", tmp_path / "logs"
    record(first / "a", "loss", AUC, dropout=0.5)
    record(second / "b", "loss", "eval/mae", depth=3)
    export_tensorboard(first, logs)
    before = tree(logs)
    export_tensorboard(first, logs)
    assert tree(logs).keys() == before.keys()
    [name] = [name for name in before if name.startswith(".hparams/")]
    assert tree(logs)[name] == before[name]
    export_tensorboard(second, logs)
    metrics, parameters = described(logs) or ([], set())
    assert metrics == [*FEW, "eval/mae", "recommender_best/eval/mae"]
    assert parameters == {"dropout", "depth"}
    # The user removes a run; the next export leaves it out.
    shutil.rmtree(logs / "a")
    export_tensorboard(second, logs)
    metrics, parameters = described(logs) or ([], set())
    assert metrics == ["loss", "eval/mae", "recommender_best/eval/mae"]
    assert {"depth", "learning_rate"} <= parameters - {"dropout"} == parameters


def test_hyper_parameters_that_are_equal_in_all_runs_are_left_out(tmp_path: Path) -> None:
    records, logs = tmp_path / "records", tmp_path / "logs"

    def parameters() -> set[str]:
        export_tensorboard(records, logs)
        _, names = described(logs) or ([], set())
        # The same as of records that are served.
        answer = record_pages(records)[1].experiment()
        assert {each["name"] for each in answer["hparamInfos"]} == names
        return names

    def add(run: str, **entries: Any) -> None:
        record(records / run, "loss", AUC, **entries)

    add("a", dropout=0.5, depth=3)
    of_one = parameters()
    assert {"dropout", "depth", "learning_rate", "optimizer"} <= of_one
    add("b", dropout=0.5, depth=3)
    assert parameters() == of_one  # nothing differs: without any column the page is empty
    add("c", dropout=0.25, depth=3)
    assert parameters() == {"dropout"}
    add("d", dropout=0.25)
    assert parameters() == {"dropout", "depth"}  # one run does not have it
    for run in ("c", "d"):
        shutil.rmtree(records / run)
        shutil.rmtree(logs / run)
    assert parameters() == of_one


def test_a_run_that_goes_on_counts_once(tmp_path: Path) -> None:
    values = event(1, scalar("loss", 0.5), scalar(HEALTH, 1), scalar(AUC, 0.5))
    state = lineage(train_lineage=train(status=RunState.RUNNING, step=1))
    write_segment(tmp_path / "records" / "a", values, state)
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert (tmp_path / "logs" / "a" / "running").exists()  # a second session of the run
    _, parameters = described(tmp_path / "logs") or ([], set())
    assert "learning_rate" in parameters


def test_there_is_no_description_where_nothing_is_gained_or_others_write(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    losses = event(1, scalar("loss", 1))
    write_segment(tmp_path / "loss" / "a", losses, lineage(train_lineage=train()))
    export_tensorboard(tmp_path / "loss", logs)
    assert described(logs) is None  # all scalars matter
    record(tmp_path / "records" / "b", "loss", AUC)
    export_tensorboard(tmp_path / "records", logs, plugins=["scalars"])
    assert described(logs) is None  # no session
    export_tensorboard(tmp_path / "records", logs)
    assert described(logs) is not None
    (logs / "other").mkdir()
    (logs / "other" / "events.out.tfevents.1.host").touch()
    export_tensorboard(tmp_path / "records", logs)
    assert described(logs) is None
    assert not (logs / ".hparams").exists()


def test_what_killed_exports_have_left_is_replaced(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    record(tmp_path / "records" / "a", "loss", AUC)
    export_tensorboard(tmp_path / "records", logs)
    (logs / ".hparams" / "1").rename(logs / ".hparams" / "12")
    shutil.copytree(logs / ".hparams" / "12", logs / ".hparams" / "9")
    (logs / ".hparams" / "14").mkdir()
    export_tensorboard(tmp_path / "records", logs)
    metrics, _ = described(logs) or ([], set())  # one description
    assert metrics == FEW
    assert (logs / ".hparams" / "15").exists()


def test_cursors_that_other_programs_have_changed_are_read_again(tmp_path: Path) -> None:
    records, logs = tmp_path / "records", tmp_path / "logs"
    for name in ("a", "b"):
        record(records / name, "loss", AUC, **{name: 1})
    export_tensorboard(records, logs)
    logdir = LogDir(str(logs))
    experiment = ExperimentFile(logdir)
    with logdir:
        experiment.update()
    record(records / "a", "loss", AUC, depth=3)
    export_tensorboard(records, logs)
    with logdir:
        shutil.rmtree(logs / ".hparams")
        (logs / "b" / CURSOR_NAME).write_text("no cursor")
        experiment.update()
    _, parameters = described(logs) or ([], set())
    assert "depth" in parameters
    assert "b" not in parameters


@pytest.mark.parametrize("load_fast", [True, False])
def test_a_running_tensorboard_shows_a_new_description(tmp_path: Path, load_fast: bool) -> None:
    records, logs = tmp_path / "records", tmp_path / "logs"

    def metrics() -> list[str]:
        answer = server.post("plugin/hparams/experiment", {"experimentName": ""}) or {}
        return [each["name"]["tag"] for each in answer.get("metricInfos", ())]

    server = TensorBoardServer(logs, tmp_path / "log", load_fast=load_fast)
    with server:
        for run, tags, expected in (("a", ("loss",), ["loss"]), ("b", ("loss", AUC), FEW)):
            record(records / run, *tags)
            with Follower(records, logs) as follower:
                eventually(lambda following=follower: following.reported)
            eventually(metrics, expected.__eq__)  # all runs were described at its end
            assert follower.report is not None
            assert follower.report.runs == [run]
    assert described(logs) is not None
