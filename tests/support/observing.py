"""What can be seen of the read side from outside, in a form that is the same everywhere.

Only the command line, `rec_summary.load` and files are looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import signal
import struct
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image
from tensorboard.compat.proto import event_pb2

from rec_summary.cli import main
from tests.support.corpus import frame, masked

LONGEST_TEXT: Final = 3000  # characters of a text that is kept as it is
LONGEST_JSON: Final = 12_000
MOST_TAGS: Final = 40
_BY_MATPLOTLIB: Final = ("/contour", "/view")
_BY_PILLOW: Final = ("/heat_map",)
_RELIABILITY: Final = "recommender/reliability/"
_WRITING: Final = 36  # pixels at top and bottom of a reliability picture that have text


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


def run(*arguments: str | Path) -> Done:
    """Runs the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(each) for each in arguments])
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return Done(code, out.getvalue(), err.getvalue())


def told(done: Done) -> dict[str, Any]:
    """Returns a command's exit code and texts.

    Two things are left out that click and rich do differently from release to release: the usage
    above a mistake, and how wide a column is.
    """
    lines = named(done.err).split("\n")
    err = "\n".join(line for line in lines if line and not line.startswith(("Usage:", "Try '")))
    out = re.sub(r"[ \t]+(?=\n)", "", re.sub(r"  +", "  ", named(done.out)))
    found: dict[str, Any] = {"code": done.code}
    found.update({"out": text(out)} if out else {})
    found.update({"err": text(err)} if err else {})
    return found


def told_json(done: Done, *, lines: bool = False) -> dict[str, Any]:
    """Returns a command's exit code, the JSON that it printed, and its other texts."""
    found, out = told(Done(done.code, "", done.err)), named(done.out)
    if not out:
        return found
    if lines and len(out) > LONGEST_JSON:
        return {**found, "json": text(out)}
    return {
        **found,
        "json": [json.loads(each) for each in out.splitlines()] if lines else json.loads(out),
    }


def named(whole: str) -> str:
    """Returns a text without the path of this directory, in which everything is."""
    return whole.replace(f"{os.getcwd()}/", "")


def text(whole: str) -> Any:
    """Returns a text as lines; of a long one the ends, and a digest."""
    lines = whole.split("\n")
    if len(whole) <= LONGEST_TEXT:
        return lines
    digest = hashlib.sha256(whole.encode()).hexdigest()
    ends = [line[:200] for line in (*lines[:3], "...", *lines[-3:])]
    return {"lines": len(lines), "sha256": digest, "ends": ends}


# Files


def files(directory: Path) -> dict[str, Any]:
    """Returns what is in a directory, file by file.

    Hidden files are left out: the lock, and the cursor, whose content is nobody else's business.
    What the cursor is good for is pinned by exporting twice.
    """
    found: dict[str, Any] = {}
    for parent, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith("."):
                continue
            # How often the description of an experiment has changed is another matter.
            key = re.sub(r"\A\.hparams/\d+/", ".hparams/", str(path.relative_to(directory)))
            if "tfevents" in name:
                found[key] = event_file(path)
            elif path.suffix == ".parquet":
                found[key] = parquet(path)
            elif path.suffix in (".csv", ".jsonl", ".pbtxt", ".tsv"):
                found[key] = text(path.read_bytes().decode())
            else:
                data = path.read_bytes()
                digest = hashlib.sha256(data).hexdigest()
                found[key] = {"nbytes": len(data), "sha256": digest}
    return dict(sorted(found.items()))


def payloads(path: Path) -> Iterator[bytes]:
    """Yields the payloads of a framed file; every checksum must be right."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert masked(data[at : at + 8]) == check, (path, at)
        payload = data[at + 12 : at + 12 + length]
        at += 16 + length
        assert at <= len(data), (path, at)
        assert masked(payload) == struct.unpack_from("<I", data, at - 4)[0], (path, at)
        yield payload


def event_file(path: Path) -> dict[str, Any]:
    """Returns a digest of all bytes of an event file, and what is easier to read.

    The digest is that of the file, unless there are pictures in it that are drawn by
    libraries; these are replaced, see `normalised`.
    """
    digest, count, drawn, tags = hashlib.sha256(), 0, 0, Counter[str]()
    for payload in payloads(path):
        count += 1
        event = event_pb2.Event.FromString(payload)
        tags.update(value.tag[:60] for value in event.summary.value)
        new = normalised(event)
        if new:
            drawn += new
            payload = event.SerializeToString(deterministic=True)
        digest.update(frame(payload))
    found: dict[str, Any] = {"events": count, "sha256": digest.hexdigest()}
    if drawn:
        found["drawn"] = drawn
    if len(tags) <= MOST_TAGS:
        found["tags"] = dict(sorted(tags.items()))
    return found


def normalised(event: Any) -> int:
    """Replaces pictures that are drawn by the export; returns how many there were.

    Recorded pictures stay as they are. Those of landscapes are drawn by matplotlib, of which
    every release draws a little differently: all that is pinned is that there is one. Pillow
    compresses differently from release to release: what is pinned are the pixels; but not
    where there is text, whose font has changed.
    """
    count = 0
    for value in event.summary.value:
        if not value.HasField("image"):
            continue
        picture, tag = value.image, value.tag
        if tag.endswith(_BY_MATPLOTLIB):
            _pixels(picture.encoded_image_string)
            picture.encoded_image_string = b"by matplotlib"
            picture.ClearField("width")
            picture.ClearField("height")
        elif tag.endswith(_BY_PILLOW):
            pixels = _pixels(picture.encoded_image_string)
            picture.encoded_image_string = hashlib.sha256(pixels.tobytes()).digest()
        elif tag.startswith(_RELIABILITY):
            pixels = _pixels(picture.encoded_image_string)[_WRITING:-_WRITING]
            picture.encoded_image_string = hashlib.sha256(pixels.tobytes()).digest()
        else:
            continue
        count += 1
    return count


def _pixels(data: bytes) -> Any:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture)


def parquet(path: Path) -> Any:
    """Returns the types and rows of a Parquet file; its bytes are pyarrow's."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    # What the elements of a list are called is up to pyarrow.
    types = [f"{field.name}: {field.type}".replace("<item:", "<element:") for field in table.schema]
    columns = [table.column(name).to_pylist() for name in table.schema.names]
    rows = [shown(row) for row in zip(*columns, strict=True)]
    return {"types": types, "rows": len(rows), "content": text("\n".join(rows))}


def frame_of(table: Any) -> Any:
    """Returns the columns and rows of a DataFrame, floats as they are.

    `DataFrame.to_csv` is not used: pandas 2 and 3 write some values differently. Neither do they
    agree about the type of strings.
    """
    names = [name for name in table.index.names if name is not None]
    if names:
        table = table.reset_index()
    types = []
    for name, kind in table.dtypes.items():
        known = str(kind)
        types.append(f"{name}: {known if known[0] in 'bifucI' else 'object'}")
    # Column by column: a row of mixed types would become floats.
    columns = [table[name].tolist() for name in table.columns]
    rows = [shown(row) for row in zip(*columns, strict=True)]
    found = {"types": types, "rows": len(rows), "content": text("\n".join(rows))}
    return {**found, "index": names} if names else found


def shown(row: Iterable[Any]) -> str:
    """Returns a row as a text that tells every value from every other."""
    return " | ".join(_shown(value) for value in row)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {_shown(value.reshape(-1).tolist())}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:16]}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, float) and math.isnan(value):
        return "nan"  # a missing string, too
    if value is None or type(value).__name__ == "NAType":
        return "nan"
    return repr(value)


def loaded(source: Path, **choice: Any) -> dict[str, Any]:
    """Returns every table that `rec_summary.load` gives, row for row."""
    import rec_summary

    found: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            records = rec_summary.load(source, **choice)
        except Exception as error:  # noqa: BLE001
            return {"error": named(f"{type(error).__name__}: {error}")}
        found["runs"] = list(records.runs)
        for kind in ("scalars", "histograms", "images", "tensors", "evaluations", "lineage"):
            found[kind] = frame_of(getattr(records, kind)())
        found["wide"] = frame_of(records.scalars(wide=True))
        chunks = list(records.iter_scalars(1000))
        found["chunks"] = [len(chunk) for chunk in chunks]
        rows = [row for chunk in chunks for row in chunk.itertuples(index=False)]
        found["chunked"] = text("\n".join(map(shown, rows)))
        found["landscapes"] = [_landscape(each) for each in records.landscapes()]
        found["problems"] = [named(str(problem)) for problem in records.problems]
    found["warnings"] = [named(str(each.message)) for each in caught if _is_ours(each)]
    return found


def _is_ours(warning: Any) -> bool:
    return "problems in" in str(warning.message)


def _landscape(recorded: Any) -> str:
    parts = dict(vars(recorded))
    held = parts.pop("landscape")
    inner = {name: getattr(held, name) for name in sorted(vars(held))}
    rows = [f"{name} = {_shown(value)}" for name, value in (*parts.items(), *inner.items())]
    return "; ".join(rows)
