"""Our protobufs: up to date, wire-compatible with MindSpore's, and good neighbours."""

import subprocess
import sys
from pathlib import Path

import pytest

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary._pb.summary_pb2 import Event

ROOT = Path(__file__).parent.parent


def test_generated_code_is_up_to_date():
    done = subprocess.run([ROOT / "tools" / "proto", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.mindspore
@pytest.mark.parametrize(
    "order",
    [
        ("rec_summary._pb.lineage_pb2", "mindspore.train.lineage_pb2"),
        ("mindspore.train.lineage_pb2", "rec_summary._pb.lineage_pb2"),
    ],
)
def test_both_live_in_one_process_in_either_order(order):
    pytest.importorskip("mindspore")
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    importlib.import_module(name.replace('lineage', 'summary'))\n"
        "from rec_summary._pb.summary_pb2 import Event as Ours\n"
        "from mindspore.train.summary_pb2 import Event as Theirs\n"
        "ours = Ours(wall_time=1.5, step=2)\n"
        "ours.summary.value.add(tag='t', scalar_value=3)\n"
        "theirs = Theirs.FromString(ours.SerializeToString())\n"
        "assert theirs.summary.value[0].scalar_value == 3\n"
        "assert Ours.FromString(theirs.SerializeToString()) == ours\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *order], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def is_repeated(field):
    """Whether a field is repeated: older releases of protobuf know the label only."""
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    return field.label == field.LABEL_REPEATED


@pytest.mark.mindspore
def test_mindspores_readers_meet_a_tag_without_a_value_where_a_kind_is_ours():
    theirs = pytest.importorskip("mindspore.train.summary_pb2")
    from rec_summary._pb.summary_pb2 import Event, Summary
    from rec_summary.values.recommender import encode_columns

    ours = Event(wall_time=1.5, step=2)
    for kind, columns in (("pr_curve", [[1, 2]] * 6), ("top_ids", [[1], [2], [2], [2]])):
        data = encode_columns(kind, kind, columns)
        ours.summary.value.append(Summary.Value.FromString(data))
    ours.summary.value.add(tag="states").metric_states.rank = 1
    ours.summary.value.add(tag="loss", scalar_value=3)
    read = theirs.Event.FromString(ours.SerializeToString())
    kinds = [(value.tag, value.WhichOneof("value")) for value in read.summary.value]
    ours_alone = ("pr_curve", "top_ids", "states")
    assert kinds == [*((tag, None) for tag in ours_alone), ("loss", "scalar_value")]
    assert Event.FromString(read.SerializeToString()) == ours


def fields(message, prefix=""):
    """Every field of a message and of the messages inside it, by path."""
    for field in message.fields:
        yield (
            f"{prefix}{message.name}.{field.name}",
            field.number,
            field.type,
            is_repeated(field),
            field.message_type.name if field.message_type else None,
        )
    for nested in message.nested_types:
        yield from fields(nested, f"{prefix}{message.name}.")


# What telemetry never carries is left out of ours; readers keep it as unknown fields.
LEFT_OUT = ("Explain.", "ModelProto.metadata_operators", "OperatorProto.", "OperatorSetProto.")


@pytest.mark.mindspore
@pytest.mark.parametrize("name", ["anf_ir_pb2", "summary_pb2", "lineage_pb2"])
def test_every_field_has_mindspores_number_and_type(name):
    import importlib

    pytest.importorskip("mindspore")
    theirs_file = importlib.import_module(f"mindspore.train.{name}").DESCRIPTOR
    ours_file = importlib.import_module(f"rec_summary._pb.{name}").DESCRIPTOR
    theirs, ours = (
        {field for message in file.message_types_by_name.values() for field in fields(message)}
        for file in (theirs_file, ours_file)
    )
    assert not {field for field in theirs - ours if not field[0].startswith(LEFT_OUT)}
    # what is ours alone has a number that MindSpore will not use
    alone = {path: number for path, number, *_ in ours - theirs}
    messages_of_ours = (
        *("RunState.", ".MapInt64Entry.", ".MapBoolEntry."),
        *("PrCurve.", "Reliability.", "TopIds.", "MetricTable.", "MetricStates.", "SliceSums."),
        *("Compaction.", "Note.", "EvaluationLineage.DirectionsEntry."),
    )
    assert not {
        path: number
        for path, number in alone.items()
        if number < 1000 and not any(message in path for message in messages_of_ours)
    }
    for enum in theirs_file.enum_types_by_name.values():
        if enum.name in ours_file.enum_types_by_name:
            theirs_values = {value.name: value.number for value in enum.values}
            ours_values = ours_file.enum_types_by_name[enum.name].values
            assert {value.name: value.number for value in ours_values} == theirs_values


def test_the_head_of_a_compacted_lineage_file_is_nothing_else() -> None:
    """It is written and read as a summary event: no field of a lineage event has its number."""
    ours = {field.number for field in LineageEvent.DESCRIPTOR.fields}
    assert Event.DESCRIPTOR.fields_by_name["compaction"].number not in ours
