"""MindSpore's collector and ours over the same seeded training, compared value by value."""

import io
import json
import os
import sys

import numpy as np
import pytest
from PIL import Image

from tests.support import forkserver
from tests.support.programs import PROGRAMS

pytest.importorskip("mindspore")

from rec_summary._pb import summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.values.tensor import from_tensor
from tests.support.programs.side_by_side_training import CUSTOM
from tests.support.training_records import events, lineage, messages
from tests.support.versions import skip_without_their_collector

PROGRAM = PROGRAMS / "side_by_side_training.py"
ROOT = PROGRAM.parents[3]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    skip_without_their_collector()
    folders = {}
    for which in ("theirs", "ours"):
        folders[which] = tmp_path_factory.mktemp(which)
        done = forkserver.run(
            [sys.executable, PROGRAM, which, folders[which]],
            cwd=folders[which],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    return folders["theirs"], folders["ours"]


def values(folder, kind):
    """All values of a kind by tag and step; MindSpore records a step twice at an epoch's end."""
    found = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.WhichOneof("value") == kind:
                found[value.tag, event.step] = getattr(value, kind)
    return found


def both_values(both, kind):
    theirs, ours = (values(folder, kind) for folder in both)
    assert theirs
    # ours has besides: the learning rate, the metrics of the evaluation, telemetry's health
    prefixes = ("learning_rate/", "eval/", "rec_summary/")
    extra = {key for key in ours if key[0].startswith(prefixes)}
    assert set(ours) - extra == set(theirs)
    return [(key, theirs[key], ours[key]) for key in theirs]


def test_scalars_are_the_same(both):
    tags = set()
    for (tag, _), theirs, ours in both_values(both, "scalar_value"):
        tags.add(tag)
        assert ours == theirs, tag
    assert tags == {"loss/auto", "mean"}


def test_histograms_are_the_same(both):
    tags = set()
    for (tag, _), theirs, ours in both_values(both, "histogram"):
        tags.add(tag)
        for field in ("count", "min", "max", "nan_count", "pos_inf_count", "neg_inf_count"):
            assert getattr(ours, field) == getattr(theirs, field), (tag, field)
        assert ours.sum == pytest.approx(theirs.sum, rel=1e-9, abs=1e-9)
        assert [b.left for b in ours.buckets] == pytest.approx([b.left for b in theirs.buckets])
        difference = [a.count - b.count for a, b in zip(ours.buckets, theirs.buckets, strict=True)]
        assert max(map(abs, difference)) <= 1
    assert tags == {
        "dense.weight/auto",
        "dense.bias/auto",
        "head.weight/auto",
        "head.bias/auto",
        "outputs",
    }


def test_images_have_the_same_pixels(both):
    tags = set()
    for (tag, _), theirs, ours in both_values(both, "image"):
        tags.add(tag)
        pixels = [
            np.asarray(Image.open(io.BytesIO(image.encoded_image))) for image in (theirs, ours)
        ]
        np.testing.assert_array_equal(*pixels)
    assert tags == {"input_data/auto", "picture"}


def test_tensors_are_the_same(both):
    tensors = both_values(both, "tensor")
    assert {key for key, _, _ in tensors} == {("hidden", step) for step in (1, 4, 8)}
    for _, theirs, ours in tensors:
        np.testing.assert_array_equal(from_tensor(ours), from_tensor(theirs))


def test_exported_tensors_are_the_same(both):
    exported = []
    for folder in both:
        [export] = folder.glob("export_*/tensor")
        exported.append({path.name: np.load(path) for path in export.iterdir()})
    assert set(exported[0]) == set(exported[1])
    for name, array in exported[0].items():
        np.testing.assert_array_equal(exported[1][name], array)


def test_the_computation_graph_is_the_same(both):
    graphs = []
    for folder in both:
        [graph] = [
            event
            for event in messages(folder, Kind.SUMMARY, summary_pb2.Event)
            if event.WhichOneof("what") == "graph_def"
        ]
        assert graph.step == 0
        graphs.append(graph.graph_def)
    assert len(graphs[0].node) > 10
    names = [sorted((node.op_type, node.scope) for node in graph.node) for graph in graphs]
    assert names[0] == names[1]
    for field in ("parameters", "outputs"):
        theirs, ours = (sorted(item.name for item in getattr(g, field)) for g in graphs)
        assert theirs == ours


def test_lineage_is_the_same(both):
    theirs, ours = (lineage(folder, "train_lineage")[-1] for folder in both)
    ours.ClearField("run_state")  # what MindSpore's does not have
    assert ours.algorithm.loss == theirs.algorithm.loss
    assert ours == theirs
    theirs, ours = (lineage(folder, "dataset_graph")[0] for folder in both)
    assert ours == theirs
    theirs, ours = (lineage(folder, "evaluation_lineage") for folder in both)
    assert json.loads(ours[-1].metric) == json.loads(theirs[-1].metric)
    assert ours[-1].valid_dataset == theirs[-1].valid_dataset
    theirs, ours = (lineage(folder, "user_defined_info")[0] for folder in both)
    assert ours == theirs
    assert len(ours.user_info) == len(CUSTOM)
