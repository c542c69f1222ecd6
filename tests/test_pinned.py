"""What the read side does today, to the byte, for the tree of `tests.support.corpus`.

Only surfaces that users know are looked at: the commands, `rec_summary.load`, and files. So
these tests stay as they are when what is behind is written anew.

What is expected is in `tests/pinned`: a JSON file for each record directory (`tree.json`: for all
of them together), with an entry for each command. Small texts are there as they are, large ones
and event files as SHA-256. After a change that is meant:

    REC_SUMMARY_REPIN=1 python -m pytest tests/test_pinned.py [-k CASE]

Where a digest changes, the commit says why. Entries of commands that are gone stay, unless
`tests/pinned` is emptied before.

Not pinned, because it cannot be, or must not:

* pictures of landscapes, which matplotlib draws: there is one, of this tag and step;
* how other pictures are compressed, which is up to Pillow: their pixels are pinned;
* `bytes_written`, which depends on both;
* the cursor beside an event file, and the lock: what they are for is;
* ages, as of `tail` on a terminal or of what stalls;
* everything that goes on until it is stopped.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import corpus
from tests.support.observing import (
    event_file,
    files,
    loaded,
    run,
    text,
    told,
    told_json,
)

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
if sys.getfilesystemencoding() != "utf-8":
    pytest.skip("a run of the corpus has a name beyond ASCII", allow_module_level=True)

PINNED = Path(__file__).with_name("pinned")
REPIN = bool(os.environ.get("REC_SUMMARY_REPIN"))
OUT = Path("out")  # beside the corpus
_MOST_LINES = 60  # of a difference
Look = Callable[[Path, Path], Any]
"""Does something with a source and an empty place of its own; returns what is pinned."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the corpus in it, which nobody changes."""
    root = tmp_path_factory.mktemp("pinned")
    corpus.build(root / "records")
    return root


@pytest.fixture
def records(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The corpus, by a relative path: long paths are cut in messages, so theirs must not vary.

    It is looked at from two hours east of Greenwich: some times are local, others are not.
    """
    monkeypatch.chdir(tree)
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "PIN-2")
        time.tzset()
        yield Path("records")
    time.tzset()
    shutil.rmtree(OUT, ignore_errors=True)


def pin(case: str, command: str, found: Any) -> None:
    """Compares with what is expected, or makes it that."""
    path = PINNED / f"{case.replace('/', '-')}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found = json.loads(json.dumps(found))
    if REPIN:
        known[command] = found
        content = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=True)
        path.write_text(content + "\n", "utf-8")
        return
    assert command in known, f"{path.name} has nothing about {command!r}: see the docstring"
    if found == known[command]:
        return
    before, after = (
        json.dumps(each, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
        for each in (known[command], found)
    )
    lines = list(difflib.unified_diff(before, after, "pinned", "found", n=2, lineterm=""))
    shown = "\n".join(line[:300] for line in lines[:_MOST_LINES])
    more = f"\n... and {len(lines) - _MOST_LINES} more lines" if len(lines) > _MOST_LINES else ""
    pytest.fail(f"case {case!r}, command {command!r} ({path.name}):\n{shown}{more}", pytrace=False)


# One record directory


def exported(source: Path, out: Path, *options: str) -> Any:
    """Exports for TensorBoard; returns what was said and what was written."""
    found = told_json(run("export", source, out, "--json", "-q", "-v", *options))
    if "json" in found:
        del found["json"]["bytes_written"]
    return {**found, "files": files(out)}


def export(source: Path, out: Path) -> Any:
    return exported(source, out)


def export_again(source: Path, out: Path) -> Any:
    """An export in the middle of the training, one at its end, and one more."""
    copy, logs = out / "records" / source.name, out / "logs"
    corpus.cut(source, copy)
    found = {"first": exported(copy, logs)}
    shutil.copytree(source, copy, dirs_exist_ok=True)
    found["second"] = exported(copy, logs)
    before = files(logs)
    found["third"] = exported(copy, logs)
    assert found["third"].pop("files") == before
    at_once = out / "at_once"
    run("export", copy, at_once, "-q")
    found["same as at once"] = files(at_once) == before
    return found


def table(form: str) -> Look:
    def look(source: Path, out: Path) -> Any:
        done = run("export", source, out, "--format", form, "--json", "-q", "-v")
        return {**told_json(done), "files": files(out)}

    return look


def in_json(*arguments: str, lines: bool = False) -> Look:
    """Runs a command that prints JSON, or lines of it."""

    def look(source: Path, _: Path) -> Any:
        command, *options = arguments
        done = run(command, source, "--json", "-v", *options)
        return told_json(done, lines=lines)

    return look


def in_words(*arguments: str) -> Look:
    def look(source: Path, _: Path) -> Any:
        command, *options = arguments
        return told(run(command, source, *options))

    return look


def load(source: Path, _: Path) -> Any:
    return loaded(source)


RULES = ("--rule", "nan-loss", "--rule", "loss > 0.9", "--rule", "*auc* drops 5% within 1d")
LOOKS: dict[str, Look] = {
    "export": export,
    "export again": export_again,
    "export csv": table("csv"),
    "export jsonl": table("jsonl"),
    "export parquet": table("parquet"),
    "inspect": in_json("inspect"),
    "inspect in words": in_words("inspect", "--all"),
    "lineage": in_json("lineage"),
    "verify": in_json("verify"),
    "verify in words": in_words("verify"),
    "tail": in_json("tail", "--once", lines=True),
    "watch": in_json("watch", "--once", "--history", *RULES, lines=True),
    "load": load,
}


@pytest.mark.parametrize("command", LOOKS)
@pytest.mark.parametrize("case", corpus.CASES)
def test_a_record_directory(records: Path, case: str, command: str) -> None:
    pin(case, command, LOOKS[command](records / case, OUT))


# Options, each where it matters

CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("long/scalars", ("--max-points", "50")),
    ("long/restarted", ("--max-points", "50")),
    ("long/changing", ("--max-points", "20")),
    ("long/mixed", ("--tags", "^loss")),
    ("long/mixed", ("--since", "1000", "--until", "2000")),
    ("long/mixed", ("--plugins", "histograms")),
    ("everything", ("--plugins", "scalars")),
    ("everything", ("--plugins", "text,hparams,images")),
    ("everything", ("--plugins", "graphs, mesh, custom_scalars, pr_curves")),
    ("everything", ("--tags", "loss|hidden", "--since", "2")),
    ("odd/steps", ("--since", "-7", "--until", "1")),
    ("kinds/histograms", ("--max-points", "10")),
    ("kinds/tensors", ("--tensors", "npy")),
    ("tree/nested", ("--runs", "*/inner*")),
    ("mindspore/ranks", ("--plugins", "hparams")),
    ("everything", ("--tags", "(")),
    ("everything", ("--plugins", "scalars,nonsense")),
    ("everything", ("--max-points", "3")),
    ("everything", ("--since", "5", "--until", "4")),
    ("everything", ("--runs", "nonsense")),
    ("everything", ("--format", "csv", "--plugins", "text")),
)


@pytest.mark.parametrize(("case", "options"), CHOICES, ids=lambda each: str(each))
def test_export_with_options(records: Path, case: str, options: tuple[str, ...]) -> None:
    pin(case, f"export {' '.join(options)}", exported(records / case, OUT, *options))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_with_options(records: Path, form: str) -> None:
    choice = ("--tags", "loss|w", "--since", "2", "--until", "1500", "--runs", "*r*")
    done = run("export", records, OUT / form, "--format", form, "--json", "-q", *choice)
    pin("tree", f"export {form} with options", {**told_json(done), "files": files(OUT)})


def test_load_with_options(records: Path) -> None:
    choice: dict[str, Any] = {"runs": "long/*", "tags": "loss|weight", "since": 1490, "until": 1510}
    pin("tree", "load with options", loaded(records, **choice))


# The whole tree

TREE: dict[str, Look] = {
    "inspect": in_json("inspect", "--runs", "*/[a-m]*"),
    "lineage": in_json("lineage"),
    "lineage in words": in_words("lineage", "--runs", "status/*"),
    "lineage csv": in_words("lineage", "--format", "csv", "-q"),
    "lineage sorted": in_words(
        *("lineage", "--sort", "-learning_rate", "--limit", "5", "--format", "csv"),
        *("--columns", "run,learning_rate,optimizer,status"),
    ),
    "lineage filtered": in_words(
        *("lineage", "--filter", "learning_rate<0.2", "--filter", "optimizer~^M"),
        *("--columns", "run,learning_rate", "--format", "csv"),
    ),
    "lineage of an unknown column": in_words("lineage", "--sort", "nonsense"),
    "tail": in_json("tail", "--once", "--tags", "^loss$", lines=True),
    # Without tags, alerts have the time at which they are found.
    "tail in words": in_words("tail", "--once", "--tags", ".", "--runs", "restart/*"),
    "verify in words": in_words("verify"),
    "verify some": in_words("verify", "--runs", "long/*", "-q"),
    "watch in words": in_words("watch", "--once", "--rule", "loss is not finite"),
    "watch from a step": in_json(
        *("watch", "--once", "--history", "--since", "1000", "--runs", "long/[dmr]*"),
        *("--rule", "loss > 0.3 for 2s", "--rule", "loss drops 90% within 10s"),
        lines=True,
    ),
    "watch with a mistake": in_words("watch", "--once", "--rule", "loss >"),
}


@pytest.mark.parametrize("command", TREE)
def test_the_tree(records: Path, command: str) -> None:
    pin("tree", command, TREE[command](records, OUT))


def test_the_tree_exported_by_one_process_and_by_two(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else it takes 16 MiB of records until there are two.
    monkeypatch.setattr("rec_summary.engines.units._SMALL", 0)
    alone = exported(records, OUT)
    content = _content(OUT)
    shutil.rmtree(OUT)
    both = exported(records, OUT, "--jobs", "2")
    assert _content(OUT) == content
    # Two processes tell of runs in the order in which they are done with them.
    assert _sorted(both["json"]) == _sorted(alone["json"])
    assert (both["code"], both["files"]) == (alone["code"], alone["files"])
    pin("tree", "export", alone)


def _sorted(report: dict[str, Any]) -> dict[str, Any]:
    """Returns a report with its lists in order."""
    return {
        name: sorted(each, key=repr) if isinstance(each, list) else each
        for name, each in report.items()
    }


def _content(directory: Path) -> dict[str, bytes]:
    """Returns every file that is not hidden, to the byte."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(p.relative_to(directory)): p.read_bytes() for p in paths if p.name[0] != "."}


def test_an_export_in_words(records: Path) -> None:
    """The summary for people; without pictures, whose size is not ours."""
    source, tables = records / "restart" / "in_file", OUT / "csv"
    commands: dict[str, tuple[str | Path, ...]] = {
        "first": (source, OUT / "logs"),
        "second": (source, OUT / "logs"),
        "other options": (source, OUT / "logs", "--tags", "loss"),
        "csv": (source, tables, "--format", "csv"),
    }
    # What tells of the progress, on the standard error, depends on how much is read at a time.
    found = {name: told(replace(run("export", *each), err="")) for name, each in commands.items()}
    pin("restart/in_file", "export in words", found)


def test_runs_that_have_fallen_silent(records: Path) -> None:
    """Since when, and when that was noticed, depends on today."""
    done = run("watch", records, "--once", "--json", "--rule", "stall", "-q")
    found = [json.loads(line) for line in done.out.splitlines()]
    kept = ("state", "name", "rule", "run", "rank", "tag", "step")
    alerts = [{name: each[name] for name in kept} for each in found]
    pin("tree", "watch for a stall", {"code": done.code, "alerts": alerts})


def test_an_event_file_of_others_is_not_touched(records: Path) -> None:
    out = OUT / "logs"
    foreign = out / "ranks" / "events.out.tfevents.1.other"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"theirs")
    done = run("export", records / "ranks", out, "-q")
    found = told(done)
    assert foreign.read_bytes() == b"theirs"
    assert [path for path in out.rglob("*") if path.is_file() and path.name[0] != "."] == [foreign]
    pin("ranks", "export beside another writer", found)


@pytest.mark.parametrize("command", ["export", "inspect", "lineage", "verify", "tail", "watch"])
@pytest.mark.parametrize("what", ["nothing", "no records", "a file"])
@pytest.mark.usefixtures("records")
def test_a_source_that_is_none(command: str, what: str) -> None:
    source = OUT / "source"
    source.parent.mkdir()
    if what == "no records":
        source.mkdir()
    elif what == "a file":
        source.write_bytes(b"")
    more = {"export": [OUT / "logs"], "tail": ["--once"], "watch": ["--once"]}
    pin("tree", f"{command} of {what}", told(run(command, source, *more.get(command, []), "-q")))


@pytest.mark.parametrize("inside", ["source", "destination"])
def test_a_destination_within_the_source(records: Path, inside: str) -> None:
    source = OUT / "records"
    shutil.copytree(records / "ranks", source)
    out = source / "logs" if inside == "destination" else OUT
    pin("tree", f"export {inside} within", told(run("export", source, out, "-q")))


# The tests themselves


def test_the_corpus_is_what_it_was(records: Path) -> None:
    """If this fails, the records are others, and no behaviour has changed."""
    found = {}
    for case in corpus.CASES:
        digest = hashlib.sha256()
        for path in sorted((records / case).rglob("*")):
            relative = str(path.relative_to(records)).encode()
            digest.update(relative + b"\0" + (path.read_bytes() if path.is_file() else b"/"))
        found[case] = digest.hexdigest()[:16]
    pin("corpus", "records", found)


def test_a_digest_is_that_of_the_file(records: Path) -> None:
    """Where nothing is drawn, nothing is normalised."""
    run("export", records / "long" / "mixed", OUT, "-q")
    [path] = (OUT / "mixed").glob("*tfevents*")
    assert event_file(path)["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_long_text_is_pinned_by_its_digest() -> None:
    assert text("a\nb") == ["a", "b"]
    assert text("x\n" * 5000) != text("x\n" * 4999 + "y\n")


def test_nothing_is_pinned_in_vain() -> None:
    """Every file in `tests/pinned` belongs to a case."""
    names = {f"{case.replace('/', '-')}.json" for case in (*corpus.CASES, "tree", "corpus")}
    assert {path.name for path in PINNED.iterdir()} == names
    for case in corpus.CASES:
        known = json.loads((PINNED / f"{case.replace('/', '-')}.json").read_text("utf-8"))
        assert LOOKS.keys() <= known.keys()
