"""Requests from outside: what they change, for how long, and what they cannot do."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore")

from mindspore import nn
from mindspore.train import Callback

from rec_summary import Incident, RecModel, SummaryCollector, load_incident
from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary.records.control import NAME, Request, add_request, new_identity
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import Kind
from rec_summary.training.collector.options import SETTINGS, CollectorOptions, check_specified
from rec_summary.training.collector.train_run import save_checkpoint
from rec_summary.training.probes.gradient_metrics import GradientMetrics
from rec_summary.training.recorder import RecorderOptions
from rec_summary.training.session.control import Control
from tests.support.nets import ClickNet, Journal, bounded, click_model, stream
from tests.support.training_records import lineage, messages, scalars, statuses
from tests.support.waiting import eventually


def request(**what: Any) -> Request:
    return Request(id=new_identity(), author="alice@host", time=1.0, **what)


def options_of(folder: Path, gradients: GradientMetrics | None = None) -> CollectorOptions:
    """Returns the options of a collector with the defaults."""
    return CollectorOptions(
        files=RecorderOptions(str(folder)),
        **check_specified(None, True),
        custom_lineage={},
        metrics={},
        lineage_secs=30.0,
        lineage_on_all_ranks=False,
        most_histogram_values=None,
        recommender=None,
        run_directory="sibling",
        control=True,
        collect_freq=10,
        collect_tensor_freq=None,
        gradients=gradients,
    )


class Asked(Control):
    """The control of a collector that has begun to record in a directory."""

    def __init__(self, folder: Path, gradients: GradientMetrics | None = None) -> None:
        self.folder, self.troubles = folder, Troubles()
        super().__init__(options_of(folder, gradients), self.troubles)
        self.begin(str(folder))


@pytest.fixture
def begun(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def ask(control: Asked, **what: Any) -> Request:
    asked = request(**what)
    add_request(str(control.folder), asked)
    control.poll()
    return asked


def texts(control: Control, step: int) -> list[str]:
    return [each.note(step).note.text for each in control.apply(step)]


def test_settings_last_for_their_span_and_go_back(begun: Asked) -> None:
    code = begun.options
    ask(begun, settings={"collect_freq": 1, "histograms": ".*table"}, steps=10)
    assert begun.options is code  # until a step applies it
    assert begun.is_due(5)
    assert texts(begun, 5) == ["until step 15: collect_freq 1, histograms .*table"]
    assert begun.options.collect_freq == 1
    assert begun.in_force()["collect_freq"] == "1 until step 15 (changed)"
    assert [step for step in range(6, 18) if begun.is_due(step)] == [15, 16, 17]
    [over] = texts(begun, 15)
    assert over == "collect_freq is 10 again, histograms is the first 5 parameters again"
    assert begun.options == code
    assert not begun.is_due(1 << 50)


def test_settings_are_shown_as_text_and_null_is_what_no_option_is(begun: Asked) -> None:
    code = begun.in_force()
    assert code == {
        "collect_freq": "10",
        "collect_tensor_freq": "a schedule",
        "histograms": "the first 5 parameters",
        "tensors": "none",
        "gradients": "off",
    }
    new = {"collect_tensor_freq": 20, "histograms": "a", "tensors": "b", "gradients": True}
    ask(begun, settings=new)
    assert texts(begun, 1) == ["collect_tensor_freq 20, histograms a, tensors b, gradients on"]
    shown = ["20", "a", "b", "every step"]
    expected = {name: f"{text} (changed)" for name, text in zip(new, shown, strict=True)}
    assert begun.in_force() == {**code, **expected}
    ask(begun, settings={**dict.fromkeys(new), "gradients": False})
    begun.apply(2)
    assert begun.in_force() == {**code, **{name: f"{code[name]} (changed)" for name in new}}


def test_gradients_are_measured_as_the_code_says_but_at_every_step(tmp_path: Path) -> None:
    measured = GradientMetrics(every=7, states=False)
    control = Asked(tmp_path, measured)
    assert control.in_force()["gradients"] == "every 7 steps"
    ask(control, settings={"gradients": True})
    control.apply(1)
    assert control.options.gradients == GradientMetrics(every=1, states=False)


def test_a_note_is_about_its_step_and_a_refused_one_is_none(begun: Asked) -> None:
    noted = [ask(begun, note="why"), ask(begun, note="since when", note_step=0)]
    noted.append(ask(begun, note="auc = 0.6", note_kind="alert", note_step=4))
    refused = ask(begun, note="x", note_step=2, settings={"collect_freq": 0})
    events = [each.note(5) for each in begun.apply(5)]
    assert [(event.step, event.note.kind) for event in events] == [
        *((5, "note"), (0, "note"), (4, "alert"), (5, "control"))
    ]
    assert [event.note.text for event in events[:2]] == ["why", "since when"]
    assert events[3].note.text.startswith("refused: collect_freq is invalid")
    assert [event.note.request for event in events] == [each.id for each in [*noted, refused]]
    assert {event.note.author for event in events} == {"alice@host"}
    assert all(event.wall_time > 1.6e9 for event in events)


def test_changes_lie_on_each_other(begun: Asked) -> None:
    ask(begun, settings={"collect_freq": 5})
    ask(begun, settings={"collect_freq": 1}, steps=10)
    begun.apply(100)
    assert begun.options.collect_freq == 1
    assert texts(begun, 110) == ["collect_freq is 5 again"]
    ask(begun, actions=("reset",))
    assert texts(begun, 111) == ["reset"]
    assert begun.options.collect_freq == 10


def test_a_later_change_is_not_said_to_be_back(begun: Asked) -> None:
    ask(begun, settings={"collect_freq": 1, "histograms": "a"}, steps=10)
    begun.apply(100)
    ask(begun, settings={"histograms": "b"})
    begun.apply(105)
    assert texts(begun, 110) == ["collect_freq is 10 again"]


def test_a_span_without_a_recorded_step_is_named(begun: Asked) -> None:
    ask(begun, settings={"tensors": "table"}, steps=2)
    [text] = texts(begun, 38)
    assert (
        text == "until step 40: tensors table (none of these steps is recorded: collect_freq is 10)"
    )
    ask(begun, settings={"tensors": "table"}, steps=2)
    assert texts(begun, 39)[-1] == "until step 41: tensors table"
    ask(begun, settings={"tensors": "table", "collect_freq": 1}, steps=1)
    assert texts(begun, 51)[-1] == "until step 52: tensors table, collect_freq 1"
    ask(begun, settings={"gradients": True}, steps=1)  # they are measured at any step
    assert texts(begun, 61)[-1] == "until step 62: gradients on"


def test_the_first_step_of_a_training_is_recorded(tmp_path: Path) -> None:
    collector = SummaryCollector(tmp_path)
    network = ClickNet()
    asks = Asks(tmp_path, collector, 1, settings={"tensors": "table"}, steps=2)
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    model.train(1, bounded(5), callbacks=[asks, collector], dataset_sink_mode=False)
    assert lineage(tmp_path, "note")[0].text == "until step 3: tensors table"


def test_a_request_waits_for_its_step_and_says_when_it_is_late(begun: Asked) -> None:
    ask(begun, settings={"collect_freq": 1}, at_step=50, steps=10)
    assert texts(begun, 40) == []
    assert [step for step in range(41, 51) if begun.is_due(step)] == [50]
    assert texts(begun, 50) == ["until step 60: collect_freq 1"]
    ask(begun, settings={"collect_freq": 2}, at_step=60, steps=10)
    [_, late] = texts(begun, 63)
    # It ends at the step at which it ends on the other ranks.
    assert late == "until step 70: collect_freq 2 (3 steps late: it was meant for all ranks)"


@pytest.mark.parametrize(
    "settings",
    [
        {"collect_freq": 0},
        {"collect_freq": None},
        {"collect_freq": "1"},
        {"collect_freq": True},
        {"collect_tensor_freq": -1},
        {"histograms": "("},
        {"tensors": 1},
        {"gradients": "on"},
        {"summary_dir": "elsewhere"},
    ],
)
def test_an_invalid_setting_is_refused_as_a_whole(
    begun: Asked, settings: dict[str, object]
) -> None:
    code = begun.options
    ask(begun, settings={"tensors": "kept"})
    begun.apply(1)
    before = begun.options
    ask(begun, settings={"collect_tensor_freq": 7, **settings}, actions=("stop", "reset"))
    begun.poll()
    assert begun.requested_stop is None
    [applied] = begun.apply(2)
    assert applied.refusal is not None
    assert "Expected: " in applied.refusal
    assert begun.options == before != code
    assert begun.troubles.counts == {"control": 1}


def test_a_stop_that_waits_is_known_before_its_step_unless_it_has_one(begun: Asked) -> None:
    ask(begun, actions=("stop",), at_step=5)
    ask(begun, actions=("flush",))
    begun.poll()
    assert begun.requested_stop is None
    asked = ask(begun, actions=("stop",))
    begun.poll()
    assert begun.requested_stop == asked
    begun.apply(1)
    begun.poll()
    assert begun.requested_stop is None


def test_nothing_is_left_of_the_requests_to_an_earlier_training(begun: Asked) -> None:
    code = begun.options
    ask(begun, settings={"collect_freq": 1}, steps=10)
    ask(begun, settings={"collect_freq": 2}, at_step=50)
    begun.apply(5)
    ask(begun, actions=("flush",))
    begun.reset()
    assert begun.options == code
    assert not begun.is_due(10**9)
    ask(begun, actions=("reset",), settings={"tensors": "a"}, lineage={"b": 1}, note="c")
    assert texts(begun, 100) == ["tensors a; lineage b=1; c; reset"]
    assert begun.in_force()["tensors"] == "a (changed)"  # what it sets comes after its reset
    assert begun.options.collect_freq == code.collect_freq


def test_nothing_is_read_before_there_is_a_directory(tmp_path: Path) -> None:
    control = Control(options_of(tmp_path), Troubles())
    control.poll()
    assert not control.is_due(1)


def test_every_change_is_undone_exactly(begun: Asked) -> None:
    # Whatever comes in which order: behind all spans, the options are those of the code.
    code, chance = begun.options, random.Random(1)
    values: dict[str, object] = {
        "collect_freq": 3,
        "collect_tensor_freq": 4,
        "histograms": "a",
        "tensors": "b",
    }
    values["gradients"] = True
    assert values.keys() == SETTINGS.keys()
    for step in range(1, 200):
        if chance.random() < 0.2:
            name = chance.choice([*values])
            asked = request(settings={name: values[name]}, steps=chance.randint(1, 30))
            add_request(str(begun.folder), asked, lambda _: True)  # the earlier ones are read
            begun.poll()
        if begun.is_due(step):
            begun.apply(step)
    begun.apply(1000)
    assert begun.options == code
    assert not begun.is_due(10**9)


def test_requests_to_an_earlier_training_are_not_applied(tmp_path: Path) -> None:
    add_request(str(tmp_path), request(actions=("stop",)))
    control = Asked(tmp_path)
    control.poll()
    assert not control.is_due(1)
    ask(control, actions=("flush",))
    assert texts(control, 1) == ["flush"]
    control.poll()
    assert not control.is_due(2)  # each is applied once


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 3, "requests": []}'])
def test_an_invalid_file_changes_nothing_and_is_reported_once(begun: Asked, content: str) -> None:
    path = begun.folder / NAME
    path.write_text(content)
    path.chmod(0o600)
    for _ in range(3):
        begun.poll()
    assert begun.troubles.counts == {"control": 1}
    assert not begun.is_due(1)
    ask(begun, actions=("flush",))
    assert texts(begun, 1) == ["flush"]


def test_a_foreign_file_changes_nothing(begun: Asked) -> None:
    add_request(str(begun.folder), request(actions=("stop",)))
    os.chmod(begun.folder / NAME, 0o660)
    begun.poll()
    assert begun.troubles.counts == {"control": 1}
    assert not begun.is_due(1)


class Asks(Journal):
    """Makes a request at a step, and waits until the collector has read it."""

    def __init__(self, folder: Path, collector: SummaryCollector, step: int, **what: Any) -> None:
        super().__init__(stop_after=60)
        self._folder, self._collector, self._step, self._what = folder, collector, step, what

    def on_train_step_end(self, run_context: Any) -> None:
        super().on_train_step_end(run_context)
        if run_context.original_args().cur_step_num == self._step:
            add_request(str(self._folder), request(**self._what))
            wait_for_request(self._collector, self._step)


def wait_for_request(collector: SummaryCollector, step: int) -> None:
    """Waits until the collector has read a request."""
    # It tells nobody else, and has nothing else to do for a test to see.
    eventually(lambda: collector._session.control.is_due(step))


def test_what_was_changed_is_recorded_with_step_and_author(tmp_path: Path) -> None:
    collector = SummaryCollector(tmp_path, collect_freq=20)
    asks = Asks(tmp_path, collector, 30, settings={"collect_freq": 1}, steps=5)
    click_model().online_train(stream(), callbacks=[asks, collector])
    assert [*scalars(tmp_path, "loss/auto")] == [1, 20, *range(30, 35), 40, 60]
    asked, over = lineage(tmp_path, "note")
    assert (asked.author, asked.kind, asked.text) == (
        "alice@host",
        "control",
        "until step 35: collect_freq 1",
    )
    assert over.text == "collect_freq is 20 again"
    states = [each.run_state for each in lineage(tmp_path, "train_lineage")]
    shown = [state.settings["collect_freq"] for state in states]
    assert "1 until step 35 (changed)" in shown
    assert shown[-1] == "20"


def test_a_pattern_that_matches_no_trained_parameter_is_named(tmp_path: Path) -> None:
    network = ClickNet()
    frozen, *trained = network.trainable_params()
    frozen.requires_grad = False
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    collector = SummaryCollector(tmp_path, collect_freq=1)
    settings = {"histograms": frozen.name, "tensors": trained[0].name[1:]}
    asks = Asks(tmp_path, collector, 3, settings=settings)
    model.train(1, bounded(5), callbacks=[asks, collector], dataset_sink_mode=False)
    [answer] = lineage(tmp_path, "note")
    names = ", ".join(parameter.name for parameter in trained)
    assert answer.text == (
        f"histograms {frozen.name}, tensors {trained[0].name[1:]} (histograms: "
        f"{frozen.name!r} matches the start of none of the trained parameters {names})"
    )


def test_gradients_are_measured_while_they_are_asked_for(tmp_path: Path) -> None:
    collector = SummaryCollector(tmp_path, collect_freq=20)
    asks = Asks(tmp_path, collector, 30, settings={"gradients": True}, steps=5)
    click_model(keep_outputs=True).online_train(stream(), callbacks=[asks, collector])
    assert collector.troubles.keys() <= {"no graph in PyNative mode"}
    # It is applied when step 30 has ended.
    assert [*scalars(tmp_path, "gradients/norm")] == [31, 32, 33, 34]
    assert lineage(tmp_path, "note")[0].text == "until step 35: gradients on"


def test_mindspores_own_loop_is_ended_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = SummaryCollector(tmp_path)
    asks = Asks(tmp_path, collector, 3, actions=("stop",))
    click_model().train(2, bounded(10), callbacks=[asks, collector], dataset_sink_mode=False)
    last = lineage(tmp_path, "train_lineage")[-1].run_state
    assert statuses(tmp_path)[-1] == "STOPPED"
    assert (last.step, last.reason) == (3, "rec-summary control, alice@host")
    assert caplog.messages[-1] == (
        "SummaryCollector: training was interrupted (rec-summary control, alice@host); "
        f"step 3 is the last one in {tmp_path}"
    )


def test_what_a_process_left_that_was_killed_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    left = tmp_path / "checkpoints" / ".rank_0.tmp.ckpt"
    left.write_text("a part of a checkpoint")
    left.chmod(0o400)
    save_checkpoint(ClickNet(), str(tmp_path), 0, 7)
    assert os.listdir(left.parent) == ["rank_0_step_7.ckpt"]


def test_a_checkpoint_that_fails_is_not_reported_as_saved(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    collector = SummaryCollector(tmp_path)
    # With its step, nothing ends the training before the collector applies it.
    actions = ("checkpoint", "stop")
    asks = Asks(tmp_path, collector, 3, settings={"collect_freq": 1}, actions=actions, at_step=3)
    click_model().train(1, bounded(10), callbacks=[asks, collector], dataset_sink_mode=False)
    [answer] = lineage(tmp_path, "note")
    assert answer.text.startswith("refused: NotADirectoryError: ")
    assert answer.text.endswith("; the settings are in force; training goes on")
    assert collector.troubles["control"] == 1
    assert statuses(tmp_path)[-1] == "FINISHED"


def test_the_last_batches_are_written_if_they_are_kept(tmp_path: Path) -> None:
    for name, options in (("kept", {"incident": Incident(batches=2)}), ("not kept", {})):
        folder = tmp_path / name
        folder.mkdir()
        collector = SummaryCollector(folder, **options)
        asks = Asks(folder, collector, 5, actions=("incident",))
        click_model().train(1, bounded(9), callbacks=[asks, collector], dataset_sink_mode=False)
    incident = load_incident(tmp_path / "kept")
    assert (incident.step, incident.reason) == (5, "asked for")
    assert [batch.step for batch in incident.batches] == [4, 5]
    notes = {note.kind: note.text for note in lineage(tmp_path / "kept", "note")}
    written = "asked for: incidents/rank_0_step_5.npz"
    assert notes == {"control": "incident", "incident": written}
    assert not (folder / "incidents").exists()
    [answer] = lineage(folder, "note")
    assert answer.text == (
        "refused: ValueError: a request is invalid. Received: 'incident'. Expected: a training "
        "with SummaryCollector(incident=Incident())."
    )


def test_an_answer_comes_after_the_lineage_that_it_is_about(tmp_path: Path) -> None:
    collector = SummaryCollector(tmp_path)
    asks = Asks(tmp_path, collector, 3, settings={"collect_freq": 1}, lineage={"incident": 12})
    click_model().train(1, bounded(5), callbacks=[asks, collector], dataset_sink_mode=False)
    seen: list[Any] = []
    for event in messages(tmp_path, Kind.LINEAGE, LineageEvent):
        if event.WhichOneof("what") == "note":
            break
        seen.append(event)
    states = [each.train_lineage.run_state for each in seen if each.HasField("train_lineage")]
    assert states[-1].settings["collect_freq"] == "1 (changed)"
    assert seen[-2].user_defined_info.user_info[0].map_int32["incident"] == 12


def test_control_can_be_turned_off(tmp_path: Path) -> None:
    collector = SummaryCollector(tmp_path, control=False)
    click_model().train(1, bounded(2), callbacks=[collector], dataset_sink_mode=False)
    assert not lineage(tmp_path, "train_lineage")[-1].run_state.settings
    with pytest.raises(TypeError, match="control is invalid"):
        SummaryCollector(tmp_path, control=1)  # type: ignore[arg-type]


def test_what_was_asked_of_a_training_ends_with_it(tmp_path: Path) -> None:
    collector = SummaryCollector(tmp_path, collect_freq=20)
    asks = Asks(tmp_path, collector, 2, settings={"collect_freq": 1})

    class AsksAtTheEnd(Callback):
        """Requests a stop when training has ended, and waits until the collector has read it."""

        def on_train_end(self, run_context: Any) -> None:
            add_request(str(tmp_path), request(actions=("stop",)))
            wait_for_request(collector, 0)

    model, data = click_model(), bounded(3)
    model.train(1, data, callbacks=[asks, collector, AsksAtTheEnd()], dataset_sink_mode=False)
    model.train(1, data, callbacks=[collector], dataset_sink_mode=False)
    assert [*scalars(tmp_path, "loss/auto")] == [1, 2, 3, 4]
    last = lineage(tmp_path, "train_lineage")[-1].run_state
    assert statuses(tmp_path)[-1] == "FINISHED"
    assert (last.step, last.settings["collect_freq"]) == (6, "20")
