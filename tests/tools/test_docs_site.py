"""What `tools/docs` is made of: marks of code blocks, links, and the navigation."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from pathlib import Path

import psutil
import pytest

import rec_summary
from rec_summary.tables.frames import Records
from rec_summary.tables.groups import Groups
from tests.support.waiting import eventually
from tools.docs_site import links
from tools.docs_site.blocks import MarkError, blocks, replaced
from tools.docs_site.run import HERE, Runner

ROOT = Path(__file__).resolve().parents[2]
NOTHING = "<!-- prepare: nothing -->"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  -")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in PAGES if path.parent != ROOT]
    assert [name for name in pages if f": {name}\n" not in f"{navigation}\n"] == []


def test_code_is_run_unless_its_mark_says_otherwise(tmp_path: Path) -> None:
    text = """
```bash
true
```
<!-- not run: it takes hours -->
```bash
sleep 9999
```
<!-- given: training; exits with 3 -->
```python
raise SystemExit(3)
```
```text
neither
```
"""
    first, second, third, fourth = blocks(page(tmp_path, text))
    assert [block.runs for block in (first, second, third, fourth)] == [True, False, True, False]
    assert third.marks == {"given": "training", "exits with": "3"}
    assert third.text == "raise SystemExit(3)"


def test_a_mark_that_is_not_understood_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MarkError, match="not runn"):
        list(blocks(page(tmp_path, "<!-- not runn: typo -->\n```bash\ntrue\n```\n")))


def test_outputs_are_written_into_their_blocks(tmp_path: Path) -> None:
    path = page(tmp_path, "a\n\n<!-- output -->\n```text\nold\nolder\n```\nb\n")
    [block] = blocks(path)
    assert replaced(path, {block.line: "new"}) == "a\n\n<!-- output -->\n```text\nnew\n```\nb\n"


def test_the_api_page_lists_all_public_names_with_their_first_lines() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    shown = set(re.findall(r"^from rec_summary import (\w+)$", text, re.MULTILINE))
    assert set(rec_summary.__all__) - shown == {"__version__"}
    assert shown < set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    listed = dict(re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \| (.+) \|$", text, re.MULTILINE))
    public = {name: getattr(rec_summary, name) for name in shown}
    for home in ("rec_summary.errors", "rec_summary.training.landscape.policy"):
        module = importlib.import_module(home)
        public |= {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == home and not name.startswith("_")
        }
    public |= {"Records": Records, "Groups": Groups}
    lines = {name: value.__doc__.split("\n\n")[0].strip() for name, value in public.items()}
    lines = {name: re.sub(r"`docs/(\S+)`", r"[\1](\1)", line) for name, line in lines.items()}
    assert listed == {name: line.replace("\n", " ") for name, line in lines.items()}


def test_what_pages_ask_for_is_there() -> None:
    for path, mark in itertools.product(PAGES, ("given", "prepare")):
        for block in blocks(path):
            if mark in block.marks:
                assert (HERE / mark / f"{block.marks[mark]}.py").is_file(), path


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("```bash\nexit 4\n```", "exit code 4, not 0"),
        ("<!-- exits with 1 -->\n```bash\ntrue\n```", "exit code 0, not 1"),
        ("<!-- for 9 seconds -->\n```bash\ntrue\n```", "it ended by itself"),
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
    ],
)
def test_what_fails_is_reported(block: str, words: str, tmp_path: Path) -> None:
    problems, count, _ = Runner(tmp_path / "work").page(page(tmp_path, f"{NOTHING}\n\n{block}\n"))
    assert count == 1
    assert words in problems[0]


def test_a_program_that_goes_on_is_stopped_as_by_ctrl_c(tmp_path: Path) -> None:
    block = f"""{NOTHING}

<!-- for 2 seconds -->
```bash
{sys.executable} -c 'import time
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("left")'
```
<!-- output -->
```text
```
"""
    problems, _, outputs = Runner(tmp_path / "work").page(page(tmp_path, block))
    assert problems == []
    assert list(outputs.values()) == ["left"]


def test_links_that_lead_nowhere_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A title\n[x](b.md#here) [y](c.md) [z](#a-title)\n")
    (tmp_path / "b.md").write_text("[x](a.md#a-title)\n")
    assert list(links.broken_in_markdown(sorted(tmp_path.iterdir()), tmp_path)) == [
        "a.md: b.md#here: no such heading",
        "a.md: c.md: no such file",
    ]


def test_links_of_the_files_at_the_top_lead_somewhere() -> None:
    assert list(links.broken_in_markdown(ROOT.glob("*.md"), ROOT)) == []


def test_what_a_block_leaves_in_the_background_lives_as_long_as_its_page(tmp_path: Path) -> None:
    text = """
```bash
sleep 9999 > /dev/null 2>&1 &
echo $! > left
```
```bash
kill -0 "$(cat left)" && cat left
```
<!-- output -->
```text
```
"""
    problems, _, outputs = Runner(tmp_path / "work").page(page(tmp_path, f"{NOTHING}\n{text}"))
    assert problems == []
    [left] = outputs.values()
    eventually(lambda: ended(int(left)), bool)


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits to be reaped by whoever adopted it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
