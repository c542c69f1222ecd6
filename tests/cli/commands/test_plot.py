"""`rec-summary plot`, as users meet it; the pictures are read again."""

from __future__ import annotations

import json
import math
import os
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.tables.plot import Line, NothingToPlot, plot, read_lines
from tests.support.command import environment, flat, python, run
from tests.support.record_dirs import custom, event, lineage, scalar, train, write_segment

pytest.importorskip("matplotlib")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("_a", "$b$", "c"):
        write_segment(
            tmp_path / "records" / name,
            *(
                event(
                    step, scalar("loss", math.nan if step == 3 else 1 / step), scalar("$x$", step)
                )
                for step in range(1, 50)
            ),
        )
    return tmp_path / "records"


def test_a_png_has_a_line_for_each_run(source: Path, tmp_path: Path) -> None:
    options = ("--tags", "loss", "-o", tmp_path / "loss.png")
    done = run("plot", source, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'loss.png'}: 3 lines in 1 panel\n"
    with Image.open(tmp_path / "loss.png") as picture:
        assert picture.size == (960, 600)
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    for colour in ((31, 119, 180), (255, 127, 14), (44, 160, 44)):  # one for each run
        assert colour in colours


def test_an_svg_has_every_name_as_it_is(source: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("svg.fonttype: none\n")  # text, not outlines
    environment = {**os.environ, "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    options = ("-o", tmp_path / "all.svg", "--json")
    done = run("plot", source, *options, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tags"] == ["loss", "$x$"]
    text = " ".join(ElementTree.parse(tmp_path / "all.svg").getroot().itertext())
    for words in ("_a", "$b$", "$x$", "loss"):
        assert words in text


def test_the_same_records_give_the_same_picture(source: Path, tmp_path: Path) -> None:
    for form in ("svg", "pdf", "png"):
        pictures = []
        for seed in ("1", "2"):  # of another interpreter
            path = tmp_path / f"{seed}.{form}"
            hashes = {**os.environ, "PYTHONHASHSEED": seed}
            assert run("plot", source, "-o", path, env=hashes).returncode == 0
            pictures.append(path.read_bytes())
        assert pictures[0] == pictures[1]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("-o", "x.gif"), 2, "a file name ending in one of .png, .svg, .pdf"),
        (("-o", "x"), 2, "a file name ending in"),
        ((), 2, "give -o FILE, or --json for the points"),
        (("-o", "x.png", "--tags", "nothing"), 2, "a pattern that is found in a tag; there are"),
        (("-o", "missing/x.png"), 1, "the picture is invalid. Received: missing/x.png"),
    ],
)
def test_mistakes(
    source: Path, tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    done = run("plot", source, *options, cwd=tmp_path, env=environment())
    assert done.returncode == code
    assert words in flat(done.stderr)
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


def test_too_many_panels_are_refused(tmp_path: Path) -> None:
    one = np.ones(1)
    lines = [Line("r", f"tag {n}", one, one) for n in range(17)]
    with pytest.raises(NothingToPlot, match="17 tags, such as tag 0, tag 1, tag 2"):
        plot(lines, str(tmp_path / "x.png"))


def lines_of(runs: int, tag: str = "loss") -> list[Line]:
    steps = np.arange(1, 101)
    return [Line(f"run {n:02}", tag, steps, (1 + n % 7 + n) / steps) for n in range(runs)]


def panels_of(lines: list[Line], path: Path) -> list[Any]:
    """Returns the axes of a picture."""
    with mock.patch("matplotlib.figure.Figure.savefig", autospec=True) as saved:
        plot(lines, str(path / "x.png"))
    return list(saved.call_args.args[0].axes)


@pytest.mark.parametrize(("runs", "bands", "drawn"), [(8, 0, 8), (9, 2, 1), (40, 2, 1)])
def test_many_runs_are_a_band_and_the_best_run(
    tmp_path: Path, runs: int, bands: int, drawn: int
) -> None:
    [axis] = panels_of(lines_of(runs), tmp_path)
    assert (len(axis.collections), len(axis.lines)) == (bands, drawn)
    if not bands:
        return
    assert axis.lines[0].get_label() == "best: run 00"
    heights = axis.collections[0].get_paths()[0].vertices[:, 1]
    greatest = max((1 + n % 7 + n) for n in range(runs))
    assert (heights.min(), heights.max()) == (pytest.approx(0.01), pytest.approx(greatest))


@pytest.mark.parametrize(
    ("tag", "label"),
    [
        ("recommender/auc/lifetime", "best: run 19"),
        ("recommender/calibration/lifetime", "best: run 09"),
        ("learning_rate/auto", "median of the runs"),
    ],
)
def test_the_best_run_is_that_of_the_metric(tmp_path: Path, tag: str, label: str) -> None:
    steps = np.arange(3)
    lines = [Line(f"run {n:02}", tag, steps, np.full(3, n / 9)) for n in range(20)]
    [axis] = panels_of(lines, tmp_path)
    assert axis.lines[0].get_label() == label


@pytest.mark.parametrize(
    ("directions", "label"),
    [
        (["less"], "best: run 0"),
        (["greater"], "best: run 8"),
        (["less", "greater"], "median of the runs"),
        ([""], "median of the runs"),
    ],
)
def test_the_best_run_is_that_of_the_direction_that_the_runs_state(
    tmp_path: Path, directions: list[str], label: str
) -> None:
    for n in range(9):
        stated = train(directions={"my_score": directions[n % len(directions)]})
        values = (event(step, scalar("my_score", n)) for step in (1, 2))
        write_segment(tmp_path / f"run {n}", lineage(train_lineage=stated), *values)
    lines = read_lines(find_runs(tmp_path), EVERYTHING, Report())
    [axis] = panels_of(lines, tmp_path)
    assert axis.lines[0].get_label() == label


def test_runs_of_a_band_may_have_steps_of_their_own(tmp_path: Path) -> None:
    steps = np.arange(10)
    lines = [Line(f"run {n}", "loss", steps + n, 0.0 * steps + n) for n in range(12)]
    [axis] = panels_of(lines, tmp_path)
    assert axis.lines[0].get_label() == "best: run 0"
    assert len(axis.lines[0].get_xdata()) == 10


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 11, 16])
def test_a_picture_has_no_empty_boxes(tmp_path: Path, count: int) -> None:
    lines = [line for n in range(count) for line in lines_of(1, f"tag {n}")]
    axes = panels_of(lines, tmp_path)
    assert len(axes) == count
    assert all(axis.lines for axis in axes)
    # The boxes fill the grid.
    area = sum(math.prod(place) for place in (_part(axis) for axis in axes))
    assert area == pytest.approx(1.0)


def _part(axis: Any) -> tuple[float, float]:
    """Returns which part of the width and the height a panel has."""
    place, grid = axis.get_subplotspec(), axis.get_gridspec()
    return len(place.colspan) / grid.ncols, len(place.rowspan) / grid.nrows


def test_the_title_of_a_panel_fits_into_it(tmp_path: Path) -> None:
    tags = [
        "recommender/calibration_free_entropy/decayed_100000",
        "loss",
        f"recommender/table/{'user_id' * 6}/norm",
        "b",
    ]
    lines = [line for tag in tags for line in lines_of(1, tag)]
    axes = panels_of(lines, tmp_path)
    assert [axis.get_title() for axis in axes] == tags
    axes[0].figure.draw_without_rendering()
    for axis in axes:
        title = axis.title.get_window_extent()
        assert 0 <= title.x0 <= title.x1 <= axis.figure.bbox.width
        assert title.width < axis.figure.bbox.width / 2


def test_a_tag_without_a_value_to_draw_has_no_panel(tmp_path: Path) -> None:
    [loss] = lines_of(1)
    nothing = replace(loss, tag="nan", y=np.full(100, np.nan))
    infinite = replace(loss, tag="infinite", y=np.where(loss.x % 2, np.inf, loss.y))
    path = str(tmp_path / "x.png")
    assert plot([loss, nothing, infinite], path) == ["loss", "infinite"]
    with pytest.raises(NothingToPlot, match="nan without a value to draw"):
        plot([nothing], path)


def test_the_command_names_tags_that_are_not_drawn(tmp_path: Path) -> None:
    write_segment(tmp_path / "r", event(1, scalar("loss", 1.0), scalar("nan", math.nan)))
    done = run("plot", tmp_path / "r", "-o", tmp_path / "x.png")
    assert done.stdout == (
        f"{tmp_path / 'x.png'}: 1 line in 1 panel\n  without a value to draw: nan\n"
    )


def test_a_missing_package_is_reported_before_records_are_read(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; from rec_summary.cli import main; "
        "sys.exit(main(['plot', *sys.argv[1:]]))"
    )
    done = python(code, tmp_path / "nothing", "-o", tmp_path / "loss.png")
    assert "pip install 'rec_summary[pictures]'" in done.stderr


def test_a_group_is_its_mean_in_a_band_and_other_runs_are_lines(tmp_path: Path) -> None:
    for name, entries in {
        "a1": {"rate": 0.5, "seed": 1},
        "a2": {"rate": 0.5, "seed": 2},
        "b1": {"rate": 0.25, "seed": 1},
        "alone": {"rate": 0.5},
    }.items():
        write_segment(
            tmp_path / "records" / name,
            lineage(user_defined_info=custom(entries)),
            *(event(step, scalar("loss", step * len(name))) for step in range(1, 9)),
        )
    (tmp_path / "matplotlibrc").write_text("svg.fonttype: none\n")
    environment = {**os.environ, "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    options = ("--group-by", "seed", "-o", tmp_path / "groups.svg")
    done = run("plot", tmp_path / "records", *options, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(ElementTree.parse(tmp_path / "groups.svg").getroot().itertext())
    for name in ("rate=0.5 (2 runs)", "rate=0.25 (1 run)", "alone"):
        assert name in text
    done = run("plot", tmp_path / "records", "--group-by", "speed", "-o", tmp_path / "x.svg")
    assert done.returncode == 2
    assert "what runs are grouped by is invalid. Received: 'speed'" in flat(done.stderr)


def test_a_legend_counts_the_runs_of_a_group_once_and_single_values_show(tmp_path: Path) -> None:
    step = np.array([1])
    lines = [
        Line(f"{name} rank {rank}", tag, step, np.array([rank + n / 2]), name, "all")
        for n, name in enumerate("ab")
        for rank in (0, 1)
        for tag in ("loss", "auc")
        if (name, tag) != ("b", "auc")
    ]
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert plot(lines, str(tmp_path / "all.svg")) == ["loss", "auc"]
    root = ElementTree.parse(tmp_path / "all.svg").getroot()
    assert " ".join(root.itertext()).count("all (") == 1
    assert " ".join(root.itertext()).count("all (2 runs)") == 1
    # Each panel has a marker for the mean and a line from the least to the greatest value.
    ids = [each.get("id", "") for each in root.iter()]
    assert sum(each.startswith("LineCollection_") for each in ids) == 2


def test_a_picture_over_examples_and_a_run_that_does_not_state_them(tmp_path: Path) -> None:
    values = [event(step, scalar("loss", step)) for step in range(1, 9)]
    write_segment(tmp_path / "records" / "known", lineage(train_lineage=train()), *values)
    options = ("--x", "samples", "-o", tmp_path / "samples.png")
    assert run("plot", tmp_path / "records", *options).returncode == 0
    write_segment(tmp_path / "records" / "other", *values)
    done = run("plot", tmp_path / "records", *options)
    assert done.returncode == 2
    assert "other has none: leave it out with --runs" in flat(done.stderr)
    assert run("plot", tmp_path / "records", *options, "--runs", "known").returncode == 0


def test_json_without_a_picture_has_the_points(source: Path) -> None:
    """Without matplotlib, too; a value has the digits of a float32."""
    options = ("--tags", "loss", "--runs", "[ac_]*", "--until", "12")
    every = run("plot", source, *options, "--json")
    few = run("plot", source, *options, "--json", "--max-points", "4")
    lines = json.loads(every.stdout)["lines"]
    assert [(line["run"], line["tag"]) for line in lines] == [("_a", "loss"), ("c", "loss")]
    assert lines[0]["step"] == [*range(1, 13)]
    assert lines[0]["value"][:4] == [1, 0.5, "NaN", 0.25]
    assert lines[0]["value"][6] == 0.14285715
    downsampled = json.loads(few.stdout)["lines"][0]
    assert downsampled["step"] == [1, 3, 12]  # the first, a gap, and the least, which is the last
