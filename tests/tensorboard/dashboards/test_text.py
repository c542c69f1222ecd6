from __future__ import annotations

import html
import math
import re

from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard import plugin_util

from rec_summary._pb.lineage_pb2 import EvaluationLineage, RunState
from rec_summary.series.lineage import Lineage
from rec_summary.tensorboard.dashboards.text import cell, lineage_point
from tests.support.record_dirs import START, custom, lineage, train


def text_of(gathered: Lineage) -> str:
    [text] = lineage_point(gathered).value.tensor.string_val
    return bytes(text).decode()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1))
@example("| a || b |")
@example("`code` ``x``")
@example("<script>alert(1)</script> &amp; <!-- x -->")
@example("**b** _i_ __x__ ~~s~~ [l](http://x) ![i](y) http://x.y <http://z>")
@example("# h")
@example("- item")
@example("1. item")
@example("\\| \\\\")
@example("$x$ $$y$$")
@example("[TOC] [^1] {#id} :---:")
def test_tensorboard_shows_a_cell_as_it_was(text: str) -> None:
    table = f"| what | value |\n| --- | --- |\n| x{cell(text)}x | end |"
    rendered = plugin_util.markdown_to_safe_html(table)
    found = re.findall(r"<td>(.*?)</td>", rendered, re.DOTALL)
    assert [html.unescape(part) for part in found] == [f"x{text}x", "end"]


@given(st.text(), st.text())
def test_a_row_stays_one_row(left: str, right: str) -> None:
    assert "\n" not in cell(left)
    assert "|" not in cell(left + right)


def test_lines_break_inside_a_cell() -> None:
    assert cell("a\nb\r\nc\td") == "a<br>b<br>c d"


def test_control_characters_and_broken_unicode_are_replaced() -> None:
    assert cell("a\x00\x1b[31m\ud800b") == "a��&#91;31m���b"


def test_very_long_text_is_cut() -> None:
    assert len(cell("x" * 10_000)) == 2000


def test_sections_without_content_are_left_out() -> None:
    gathered = Lineage()
    gathered.take_custom(lineage(user_defined_info=custom({"a": 1})), START)
    assert re.findall("### .*", text_of(gathered)) == ["### Custom data"]


def test_all_sections() -> None:
    gathered = Lineage()
    gathered.take_train(lineage(train_lineage=train(status=RunState.FAILED)), START)
    gathered.take_custom(lineage(user_defined_info=custom({"a": 1})), START)
    gathered.take_evaluation(EvaluationLineage(metric='{"auc": 1}'), 5, START)
    titles = re.findall("### (.*)", text_of(gathered))
    assert titles == ["Run", "Hyper-parameters", "Data", "Model", "Custom data", "Evaluation"]
    assert "| status | FAILED |" in text_of(gathered)
    assert "| auc (step 5) | 1 |" in text_of(gathered)


def test_the_program_is_in_the_table_of_the_run() -> None:
    gathered = Lineage()
    described = train(git_commit="a1", command=["python", "a.py"], packages={"numpy": "2.0"})
    gathered.take_train(lineage(train_lineage=described), START)
    rows = "| commit | a1 |\n| command | python a.py |\n| packages | numpy 2.0 |"
    assert rows in text_of(gathered)


def test_times_beyond_any_calendar_are_shown_as_numbers() -> None:
    gathered = Lineage()
    gathered.take_train(lineage(train_lineage=train(start_time=math.inf)), 1e300)
    text = text_of(gathered)
    assert "| start | inf seconds since 1970 |" in text
    assert "| last update | 1e+300 seconds since 1970 |" in text


def test_an_unbounded_stream_has_no_size() -> None:
    gathered = Lineage()
    gathered.take_train(lineage(train_lineage=train(unbounded=True)), START)
    assert "| training samples | unbounded stream |" in text_of(gathered)
