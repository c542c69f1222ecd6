"""The pipeline of a data set as a message: what MindSpore says of real data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import dataset as data
from mindspore.dataset import transforms, vision
from PIL import Image

from rec_summary.training.graphs import dataset_graph


@pytest.fixture
def images(tmp_path: Path) -> str:
    """A data set of images in the folders of two classes."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "1.png")
    return str(tmp_path)


def rows() -> dict[str, Any]:
    return {"ids": np.zeros((8, 3), np.int32), "label": np.zeros((8, 1), np.float32)}


def test_the_operations_are_children_from_the_last_one_to_the_sources() -> None:
    shuffled = data.NumpySlicesDataset(rows()).shuffle(4)
    named = data.NumpySlicesDataset(rows()).rename("label", "other").project(["other"])
    pipeline = data.zip((shuffled, named))
    batch = dataset_graph(pipeline.batch(2, drop_remainder=True)).dataset_graph
    assert batch.parameter.mapStr["op_type"] == "Batch"
    assert batch.parameter.mapInt["batch_size"] == 2
    assert batch.parameter.mapBool["drop_remainder"]
    [joined] = batch.children
    assert [child.parameter.mapStr["op_type"] for child in joined.children] == [
        "Shuffle",
        "Project",
    ]
    assert joined.children[0].parameter.mapInt["buffer_size"] == 4
    # Lists are texts in JSON, as in MindSpore.
    assert list(joined.children[1].parameter.mapStrList["columns"].strValue) == ['"other"']
    [renamed] = joined.children[1].children
    assert [child.parameter.mapStr["op_type"] for child in renamed.children] == ["GeneratorDataset"]


def test_operations_of_a_map_have_their_names_and_parameters() -> None:
    steps = [transforms.TypeCast("int32"), transforms.PadEnd([4], 0), lambda ids: ids]
    mapped = data.NumpySlicesDataset(rows()).map(steps, input_columns=["ids"])
    operations = dataset_graph(mapped).dataset_graph.operations
    named = [operation.operationParam.mapStr for operation in operations]
    assert [parameters["tensor_op_name"] for parameters in named[:2]] == ["TypeCast", "PadEnd"]
    assert "<lambda>" in named[-1]["tensor_op_name"]
    assert named[0]["tensor_op_params"] == '{"data_type": "int32"}'


def test_whole_numbers_of_a_sampler_are_its_size(images: str) -> None:
    sampler = data.SubsetSampler([0, 2, 5])
    folder = data.ImageFolderDataset(images, sampler=sampler).map(vision.Decode())
    [source] = dataset_graph(folder).dataset_graph.children
    assert list(source.sampler.size) == [0, 2, 5]
    assert source.sampler.operationParam.mapStr["sampler_name"] == "SubsetSampler"
    assert source.parameter.mapStr["dataset_dir"] == images


def test_other_numbers_of_a_sampler_are_its_weights(images: str) -> None:
    sampler = data.WeightedRandomSampler([0.5, 0.25], 2)
    graph = dataset_graph(data.ImageFolderDataset(images, sampler=sampler)).dataset_graph
    assert list(graph.sampler.weights) == [0.5, 0.25]
    assert graph.sampler.operationParam.mapInt["num_samples"] == 2
    assert not graph.sampler.size
