from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import ArgumentError, DestinationError, SourceError
from rec_summary.tensorboard.embedding_tables import MOST_ROWS
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.projector import CONFIG_NAME, export_projector
from rec_summary.values.tensor import to_tensor
from tests.support.checkpoint_bytes import value
from tests.support.record_dirs import event, scalar, tree, write_segment
from tests.support.tensorboard_servers import serving

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def tensor(tag: str, array: Any) -> Summary.Value:
    return Summary.Value(tag=tag, tensor=to_tensor(array))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A run with a checkpoint, and one with recorded tensors."""
    first = tmp_path / "records" / "first"
    write_segment(first, event(1, scalar("loss", 1)))
    (first / "ckpt_dir").mkdir()
    for index, name in enumerate(("old", "new")):
        path = first / "ckpt_dir" / f"{name}.ckpt"
        path.write_bytes(
            value("user.embedding_table", (4, 3), "Float32", (TABLE + index).tobytes())
            + value("head.bias", (3,), "Float32", TABLE[0].tobytes())
        )
        os.utime(path, (1000 + index, 1000 + index))
    write_segment(
        tmp_path / "records" / "second",
        event(1, tensor("table/item", TABLE), tensor("vector", TABLE[0])),
        event(2, tensor("table/item", TABLE * 2)),
    )
    return tmp_path / "records"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_tensorboard_serves_tables_and_labels(records: Path, logdir: Path, tmp_path: Path) -> None:
    report = export_tensorboard(records, logdir)
    assert export_projector(records, logdir, "table") == {
        "first": ("user.embedding_table",),
        "second": ("table/item",),
    }
    with serving(logdir, report.runs, tmp_path) as servers:
        for server in servers.values():
            server.get("plugins_listing")
            server.eventually(lambda server=server: server.get("plugin/projector/runs"))
            assert set(server.get("plugin/projector/runs")) == {"first", "second"}
            for run, name, table in (
                ("first", "user.embedding_table", TABLE + 1),
                ("second", "table/item", TABLE * 2),
            ):
                [info] = server.get("plugin/projector/info", run=run)["embeddings"]
                assert (info["tensorName"], info["tensorShape"]) == (name, [4, 3])
                raw = server.fetch_query("plugin/projector/tensor", run=run, name=name)
                np.testing.assert_array_equal(np.frombuffer(raw, "<f4").reshape(4, 3), table)
                labels = server.fetch_query(
                    "plugin/projector/metadata", run=run, name=name, num_rows="100"
                )
                assert labels == b"0\n1\n2\n3\n"


def test_labels_of_several_columns(records: Path, logdir: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.tsv"
    labels.write_text("title\tyear\n" + "".join(f"film {n}\t{1990 + n}\n" for n in range(4)))
    export_projector(records, logdir, "user", labels=labels)
    [written] = (logdir / "first" / "projector").glob("*.tsv")
    assert written.read_text() == labels.read_text()
    labels.write_text("one\ntwo\n")
    with pytest.raises(ArgumentError, match="which is 4"):
        export_projector(records, logdir, "user", labels=labels)


def test_a_name_that_is_no_text_is_that_of_the_export(tmp_path: Path, logdir: Path) -> None:
    path = tmp_path / "one.ckpt"
    path.write_bytes(value("t", (2, 2), "Float32", TABLE[:2, :2].tobytes()))
    write_segment(tmp_path / "tree" / os.fsdecode(b"\xe9"), event(1, scalar("loss", 1)))
    report = export_tensorboard(tmp_path / "tree", logdir)
    assert [*export_projector(tmp_path / "tree", logdir, "t", checkpoint=path)] == report.runs


def test_only_what_matches_is_written(records: Path, logdir: Path) -> None:
    write_segment(records / "second", event(3, tensor("z", TABLE)))
    assert export_projector(records, logdir, "user") == {"first": ("user.embedding_table",)}
    assert not (logdir / "second").exists()
    assert export_projector(records, logdir, "z") == {"second": ("z",)}


def test_a_directory_that_another_export_writes_to_is_refused(records: Path, logdir: Path) -> None:
    with LogDir(str(logdir)), pytest.raises(DestinationError, match="another export"):
        export_projector(records, logdir, "user")
    assert export_projector(records, logdir, "user")


def test_only_an_end_of_line_ends_a_label(records: Path, logdir: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    titles = ["M\u2028useum", "\x85", "a\x0cb", "d"]
    labels.write_bytes("\r\n".join(titles).encode("utf-8-sig"))
    export_projector(records, logdir, "user", labels=labels)
    [written] = (logdir / "first" / "projector").glob("*.tsv")
    assert written.read_text() == "".join(f"{title}\n" for title in titles)


def test_a_checkpoint_from_elsewhere(records: Path, logdir: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.ckpt"
    path.write_bytes(value("big", (2, 2), "Float32", TABLE[:2, :2].tobytes()))
    link = tmp_path / "latest.ckpt"
    link.symlink_to(path)  # the user's own
    found = export_projector(records, logdir, "big", runs="second", checkpoint=link)
    assert found == {"second": ("big",)}
    with pytest.raises(SourceError, match="the checkpoint"):
        export_projector(records, logdir, "big", checkpoint=tmp_path / "nothing")
    path.write_bytes(b"no checkpoint")
    with pytest.raises(SourceError, match="offset 0"):
        export_projector(records, logdir, "big", checkpoint=path)


def test_of_a_large_table_rows_at_even_distances(logdir: Path, tmp_path: Path) -> None:
    rows = MOST_ROWS * 2
    table = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    table[10] = np.nan
    path = tmp_path / "large.ckpt"
    path.write_bytes(value("t", table.shape, "Float32", table.tobytes()))
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss", 1)))
    export_projector(tmp_path / "records", logdir, "t", checkpoint=path)
    folder = logdir / "run" / "projector"
    written = np.fromfile(folder / "t.bytes", "<f4").reshape(-1, 2)
    labels = [int(line) for line in (folder / "t.tsv").read_text().split()]
    assert len(written) == len(labels) == MOST_ROWS
    np.testing.assert_array_equal(written, table[labels])
    assert (labels[0], labels[-1], 10 in labels) == (0, rows - 1, False)


def test_a_name_that_nothing_has_is_reported_with_those_that_there_are(
    records: Path, logdir: Path
) -> None:
    with pytest.raises(ArgumentError, match=r"there is: user\.embedding_table, table/item"):
        export_projector(records, logdir, "^nothing$")


def test_a_configuration_of_others_is_not_touched(records: Path, logdir: Path) -> None:
    (logdir / "first").mkdir(parents=True)
    (logdir / "first" / CONFIG_NAME).write_text("embeddings {}")
    with pytest.raises(DestinationError, match="of another writer"):
        export_projector(records, logdir, "user")
    assert (logdir / "first" / CONFIG_NAME).read_text() == "embeddings {}"


def test_a_second_export_replaces_the_first(records: Path, logdir: Path) -> None:
    export_projector(records, logdir, "user")
    before = tree(logdir)
    export_projector(records, logdir, "user")
    assert tree(logdir) == before


def test_links_are_not_followed(records: Path, logdir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (logdir / "first").mkdir(parents=True)
    (logdir / "first" / "projector").symlink_to(outside)
    with pytest.raises(DestinationError):
        export_projector(records, logdir, "user")
    assert list(outside.iterdir()) == []
