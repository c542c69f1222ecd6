"""What a lineage says of a run, by the names under which it is to be shown."""

from __future__ import annotations

from typing import Any, Final

from tools.checks.acceptance.records import Rank, RecordedRun

_OF_MODEL: Final = ("network", "train_dataset_path", "train_dataset_size")


def session_rank(run: RecordedRun) -> Rank | None:
    """Returns the rank that speaks for the run: the first that describes the training."""
    return next((rank for rank in run.ranks if rank.train or rank.custom), None)


def recorded(rank: Rank) -> dict[str, Any]:
    """Returns MindSpore's hyper-parameters, as far as they are stated."""
    if rank.train is None:
        return {}
    train = rank.train[0]
    hyper, data, state = train.hyper_parameters, train.train_dataset, train.run_state
    found: dict[str, Any] = {"network": train.algorithm.network or None}
    for name in ("optimizer", "loss_function", "parallel_mode"):
        found[name] = getattr(hyper, name) or None
    for name in ("learning_rate", "epoch", "device_num", "batch_size"):
        found[name] = getattr(hyper, name) if hyper.HasField(name) else None
    found["train_dataset_path"] = data.train_dataset_path or None
    found["train_dataset_size"] = (
        data.train_dataset_size if data.HasField("train_dataset_size") else None
    )
    # What 32 bits cannot hold stands in fields of our own.
    found["batch_size"] = state.batch_size or found["batch_size"]
    found["train_dataset_size"] = state.dataset_size or found["train_dataset_size"]
    return {name: value for name, value in found.items() if value is not None}


def all_of(rank: Rank) -> dict[str, Any]:
    """Returns the hyper-parameters and the custom data."""
    found = recorded(rank)
    for name, value in rank.custom.items():
        found[f"custom.{name}" if name in found else name] = value
    return found


def in_own_table(rank: Rank) -> dict[str, Any]:
    """Returns the hyper-parameters without those that belong to the data or the model."""
    return {name: value for name, value in recorded(rank).items() if name not in _OF_MODEL}
