"""What the page is answered: the same as commands print, and curves with their errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rec_summary._pb.lineage_pb2 import Note
from rec_summary.tensorboard.page.answers import PageAnswers
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support import command
from tests.support.broken_streams import BREAK, by_chance, stream
from tests.support.record_dirs import START, custom, event, lineage, scalar, train, write_segment
from tests.support.recorded_streams import write_histories

RUN = "broken"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("page") / "records"
    histories = stream(by_chance)
    reports = len(histories[0].steps)
    scalars = {
        "loss": np.linspace(1, 0.5, reports),
        "recommender/ctr/auc/last_20000": np.linspace(0.6, 0.7, reports),
        "recommender/ctr/calibration/lifetime": np.full(reports, 1.1),
        "recommender/ctr/normalised_entropy/last_20000": np.full(reports, 0.9),
    }
    begun = lineage(train_lineage=train(step=1))
    fired = lineage(note=Note(text="auc = 0.6", kind="alert"), step=BREAK)
    write_histories(tree / RUN, histories, scalars, begun, fired)
    write_segment(tree / "plain", event(1, scalar("loss", 1.0)))
    return tree


@pytest.fixture(scope="module")
def answers(records: Path) -> PageAnswers:
    index = RunIndex(str(records))
    index.poll()
    return PageAnswers(index)


def printed(name: str, records: Path) -> object:
    done = command.run(name, records / RUN, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_runs_have_their_tasks(answers: PageAnswers) -> None:
    runs = {run["run"]: run for run in answers.runs()["runs"]}
    assert {name: run["is_recommender"] for name, run in runs.items()} == {
        RUN: True,
        "plain": False,
    }
    assert runs[RUN]["tasks"] == ["ctr"]
    assert runs[RUN]["step"] == stream(by_chance)[0].steps[-1]
    assert [run["run"] for run in answers.runs([RUN])["runs"]] == [RUN]


def test_page_and_commands_give_the_same_answers(answers: PageAnswers, records: Path) -> None:
    why = answers.why(RUN)
    text, rows = why.pop("lines"), why.pop("rows")
    assert (why.pop("problems"), why.pop("is_current")) == ([], True)
    assert {**why, "run": None} == {**printed("why", records), "run": None}  # type: ignore[dict-item]
    assert why["findings"][0]["name"] == "country=DE"
    # Its row in a map is the one that the page leads to.
    shown = answers.map(RUN, rows[0]["map"])
    [row] = [each for each in shown["rows"] if each["name"] == "DE"]
    assert (shown["column"], rows[0]["row"], rows[0]["value"]) == ("country", "DE", row["value"])
    assert text == command.run("why", records / RUN).stdout.splitlines()
    [row], [own] = answers.lineage(RUN), printed("lineage", records)  # type: ignore[misc]
    assert {**row, "run": None} == {**own, "run": None}  # type: ignore[dict-item]


def test_the_page_and_agents_get_the_same_answers(answers: PageAnswers, records: Path) -> None:
    pytest.importorskip("mcp_types", reason="needs the SDK of MCP, version 2")
    from tests.support import agents

    about = {"runs": RUN}
    found = agents.answers(records, ("why", about), ("lineage", about))
    why, table = (json.loads(text) for answer in found for text in agents.texts(answer))
    page = answers.why(RUN)
    assert page.keys() - why.keys() == {"lines", "problems", "rows", "is_current"}
    assert why == {key: page[key] for key in why}
    assert table == answers.lineage(RUN)


def test_a_curve_has_its_values_and_errors(answers: PageAnswers) -> None:
    answers.why(RUN)  # reads the run
    quality = answers.quality(RUN)
    assert [(mark["kind"], mark["step"]) for mark in quality["marks"]] == [("alert", BREAK)]
    assert quality["loss"]["value"][0] == 1
    [task] = quality["tasks"]
    metrics = {each["metric"]: each["windows"] for each in task["metrics"]}
    assert list(metrics) == ["auc", "normalised_entropy", "calibration"]
    [window] = metrics["calibration"]
    [whole] = [each for each in stream(by_chance) if (each.task, each.column) == ("ctr", "")]
    # The error of all predictions so far, relative to the clicks.
    squares, clicks = whole.sums[:, 0, 10].cumsum(), whole.sums[:, 0, 2].cumsum()
    assert window["step"] == whole.steps.tolist()
    assert window["error"] == pytest.approx((np.sqrt(squares) / clicks).tolist(), rel=1e-4)
    [entropy] = metrics["normalised_entropy"]
    assert 0 < entropy["error"][-1] < 0.05


def test_curves_wait_for_nothing(records: Path) -> None:
    index = RunIndex(str(records))
    index.poll()
    answers = PageAnswers(index)
    before = answers.quality(RUN)
    assert (before["marks"], before["is_current"]) == ([], False)
    answers.why(RUN)
    after = answers.quality(RUN)
    assert after["is_current"]
    with_error = [
        {
            metric["metric"]
            for metric in answer["tasks"][0]["metrics"]
            if metric["windows"][0].pop("error") is not None
        }
        for answer in (before, after)
    ]
    assert with_error == [set(), {"normalised_entropy", "calibration"}]
    assert {**before, "is_current": True, "marks": after["marks"]} == after


def test_an_unknown_run_is_a_key_error(answers: PageAnswers) -> None:
    for ask in (answers.quality, answers.why, answers.maps, answers.lineage):
        with pytest.raises(KeyError):
            ask("none")
    with pytest.raises(KeyError):
        answers.map(RUN, "none")


def test_maps_are_plain_data_for_json(answers: PageAnswers) -> None:
    text = json.dumps(answers.maps(RUN), allow_nan=False)
    every = json.loads(text)["maps"]
    assert {each["metric"] for each in every} >= {"calibration", "ne", "traffic"}
    for each in every:
        own = json.loads(json.dumps(answers.map(RUN, each["key"]), allow_nan=False))
        assert {**own, "rows": len(own["rows"])}.items() >= each.items()
    assert json.dumps(answers.quality(RUN), allow_nan=False)


def written(directory: Path, first: int, last: int) -> None:
    steps = range(first, last)
    write_segment(directory, *(event(s, scalar("recommender/auc/lifetime", s / 64)) for s in steps))


def test_what_is_recorded_later_is_answered(tmp_path: Path) -> None:
    written(tmp_path / "run", 1, 20)
    index = RunIndex(str(tmp_path))
    index.poll()
    answers = PageAnswers(index, rest=0)
    assert answers.lineage("run")[0]["step"] == 19
    written(tmp_path / "run", 20, 30)
    index.poll()
    window = answers.quality("run")["tasks"][0]["metrics"][0]["windows"][0]
    assert (window["step"][-1], window["value"][-1]) == (29, 29 / 64)
    assert answers.lineage("run")[0]["step"] == 29
    assert answers.why("run")["is_current"]


def test_a_run_is_not_read_all_the_time_and_answers_say_so(tmp_path: Path) -> None:
    written(tmp_path / "run", 1, 20)
    index = RunIndex(str(tmp_path))
    index.poll()
    answers = PageAnswers(index, rest=1e9)
    before = answers.why("run")
    assert before["is_current"]
    written(tmp_path / "run", 20, 30)
    index.poll()
    assert answers.why("run") == {**before, "is_current": False}
    assert not answers.maps("run")["is_current"]
    quality = answers.quality("run")
    assert not quality["is_current"]
    # Curves need no reading.
    assert quality["tasks"][0]["metrics"][0]["windows"][0]["step"][-1] == 29


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    written(tmp_path / "run", 1, 20)
    [path] = (tmp_path / "run").glob("*.summary.*_MS")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    index = RunIndex(str(tmp_path))
    index.poll()
    [problem] = PageAnswers(index).why("run")["problems"]
    assert path.name in problem


def test_runs_of_a_group_are_a_mean_in_a_band(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        values = {"loss": np.full(40, 1.0 + number)}
        values["recommender/ctr/auc/last_20000"] = np.linspace(0.6, 0.7, 40) + number / 100
        entries = {"group": "wide"} if number < 2 else {"team": "ads"}
        write_histories(
            tmp_path / name, stream(), values, lineage(user_defined_info=custom(entries))
        )
    index = RunIndex(str(tmp_path))
    index.poll()
    answers = PageAnswers(index)
    assert answers.runs()["groups"] == [{"group": "wide", "runs": 2}]
    group = answers.group("wide")
    [task] = group["tasks"]
    [window] = task["metrics"][0]["windows"]
    assert (task["task"], task["metrics"][0]["metric"], window["window"]) == (
        "ctr",
        "auc",
        "last_20000",
    )
    assert window["step"] == stream()[0].steps.tolist()
    for statistic, more in (("least", 0.0), ("value", 0.005), ("greatest", 0.01)):
        assert window[statistic] == pytest.approx((np.linspace(0.6, 0.7, 40) + more).tolist(), 1e-5)
    assert {name: group["loss"][name][0] for name in ("least", "value", "greatest")} == {
        "least": 1,
        "value": 1.5,
        "greatest": 2,
    }
    with pytest.raises(KeyError):
        answers.group("none")


def test_runs_of_a_group_may_begin_and_end_at_other_times(tmp_path: Path) -> None:
    tag, noise = "recommender/auc/lifetime", np.random.default_rng(1).normal(0, 0.1, (2, 1500))
    for number, (begin, count) in enumerate(((0.0, 1500), (172_800.0, 900))):
        events = (
            event(step, scalar(tag, noise[number, step - 1]), at=START + begin + step)
            for step in range(1, count + 1)
        )
        entries = lineage(user_defined_info=custom({"group": "wide"}))
        write_segment(tmp_path / "ab"[number], entries, *events)
    index = RunIndex(str(tmp_path))
    index.poll()
    window = PageAnswers(index).group("wide")["tasks"][0]["metrics"][0]["windows"][0]
    assert len(window["step"]) <= 500
    assert np.diff(window["wall_time"]).min() > 0
    at = np.array(window["step"]) - 1
    both = np.where(at < 900, noise[:, at].mean(0), noise[0, at])
    assert window["value"] == pytest.approx(both.tolist(), abs=1e-4)
