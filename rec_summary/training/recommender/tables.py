"""The embedding tables of a network, and samples of their rows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mindspore import Tensor, nn, ops

from rec_summary.arrays import Array
from rec_summary.metrics.tables.row_norms import SAMPLED_ROWS, sample_rows
from rec_summary.records.failures import Troubles
from rec_summary.training.tensors import as_array, is_on_cpu

_LAYERS: Final = "mindspore.nn.layer."


@dataclass(frozen=True)
class EmbeddingTable:
    """A table.

    Attributes:
        parameter: The parameter of the table; None if only its ids are known.
        size: The number of rows; None if it is open, as a `MapParameter` has a row for each id that
            was looked up.
    """

    parameter: Any
    size: int | None


def network_parameters(network: nn.Cell) -> list[Any]:
    """Returns the parameters of a network, without the state of its optimizers.

    A moment of Adam has the name of its parameter, the shape, and a prefix.
    """
    optimizers = [cell for _, cell in network.cells_and_names() if isinstance(cell, nn.Optimizer)]
    trained = {id(param) for optimizer in optimizers for param in optimizer.parameters}
    state = {id(param) for optimizer in optimizers for param in optimizer.get_parameters()}
    return [param for param in network.get_parameters() if id(param) not in state - trained]


def layer_weights(network: nn.Cell) -> set[int]:
    """Returns the ids (of `id`) of the parameters that are no tables, by the layer that owns them.

    These are the parameters of MindSpore's own layers, such as `nn.Dense`, apart from its layers of
    embeddings. What a layer of the user owns may be a table: nothing says what it is used for.
    """
    return {
        id(parameter)
        for _, cell in network.cells_and_names()
        for _, parameter in cell.parameters_and_names(expand=False)
        if _kind_of_layer(cell) not in ("", "embedding")
    }


def _kind_of_layer(cell: nn.Cell) -> str:
    """Returns the module of MindSpore's layer that a cell is; "" for a layer of the user."""
    modules = (kind.__module__ for kind in type(cell).__mro__)
    return next((base[len(_LAYERS) :] for base in modules if base.startswith(_LAYERS)), "")


def find_tables(
    names: Iterable[str],
    parameters: Iterable[Any],
    troubles: Troubles,
    not_tables: Container[int] = (),
) -> dict[str, EmbeddingTable]:
    """Returns the tables of these names.

    A name is the name of a parameter, or parts of it between dots, at the start if several fit. For
    `nn.Embedding` and `nn.EmbeddingLookup`, it is the name of the layer.

    Args:
        names: The names.
        parameters: The parameters of the network; see `network_parameters`.
        troubles: Receives each name without a parameter, or with several.
        not_tables: The ids of parameters that are tables by their full name only; see
            `layer_weights`.
    """
    by_name = {str(param.name): param for param in parameters if _is_map(param) or param.shape}
    tables = {full: p for full, p in by_name.items() if _is_matrix(p) and id(p) not in not_tables}
    matched = {}
    for name in names:
        candidates = [by_name[name]] if name in by_name else _named(name, tables)
        if len(candidates) == 1:
            (parameter,) = candidates
            size = None if _is_map(parameter) else int(parameter.shape[0])
            matched[name] = EmbeddingTable(parameter, size)
        else:
            what = f"{len(candidates) or 'no'} tables have the name {name!r}"
            troubles.report(
                "recommender metrics: tables",
                f"{what}; its ids are counted, its rows are not sampled. The tables are: "
                f"{', '.join(tables) or 'there are none'}",
            )
            matched[name] = EmbeddingTable(None, None)
    return matched


def _named(name: str, tables: Mapping[str, Any]) -> list[Any]:
    """Returns the tables that have a name as a part of theirs, at the start if there are some."""
    # A training step puts a prefix before names: "network.item_embedding.embedding_table".
    first = [table for full, table in tables.items() if full.startswith(f"{name}.")]
    return first or [table for full, table in tables.items() if f".{name}." in f"{full}."]


class RowSampler:
    """Reads the same few rows of each table each time, and never a whole table."""

    def __init__(
        self,
        tables: Mapping[str, EmbeddingTable],
        troubles: Troubles,
        count: int = SAMPLED_ROWS,
    ) -> None:
        """Chooses the rows, `count` of each table at most."""
        self._troubles = troubles
        self._count = count
        self._tables = {n: table for n, table in tables.items() if table.parameter is not None}
        self._rows: dict[str, Array] = {
            name: sample_rows(table.size, count)
            for name, table in self._tables.items()
            if table.size is not None
        }

    @property
    def open_tables(self) -> list[str]:
        """The tables of open size whose rows are not chosen yet."""
        return [name for name in self._tables if name not in self._rows]

    def choose(self, table: str, ids: Array) -> None:
        """Chooses the rows of a table of open size, from the ids of a batch."""
        if ids.size and ids.dtype.kind in "iu":
            self._rows[table] = np.unique(ids[ids >= 0])[: self._count].astype(np.int64)

    @property
    def names(self) -> list[str]:
        """The tables with chosen rows."""
        return list(self._rows)

    def take(self, names: Iterable[str]) -> dict[str, tuple[Array, Array]]:
        """Returns numbers (s,) and values (s, width) by table. It drops a table that fails."""
        samples = {}
        for name in names:
            rows = self._rows[name]
            try:
                samples[name] = rows, self._gather(self._tables[name], rows)
            except Exception as error:  # noqa: BLE001  # training continues
                self._troubles.report(f"recommender metrics: rows of {name}", error)
                del self._tables[name], self._rows[name]
        return samples

    def _gather(self, table: EmbeddingTable, rows: Array) -> Array:
        parameter = table.parameter
        if table.size is None:
            keys = Tensor(rows, parameter.key_tensor.dtype)
            return np.array(as_array(parameter.get(keys, False), parameter.name), np.float32)
        if is_on_cpu():
            # A view of the live table; fancy indexing copies only the rows.
            values = as_array(parameter, parameter.name)[rows]
        else:
            values = as_array(ops.gather(parameter, Tensor(rows), 0), parameter.name)
        return values.reshape(len(rows), -1)


def _is_matrix(parameter: Any) -> bool:
    return len(parameter.shape) == 2 or _is_map(parameter)


def _is_map(parameter: Any) -> bool:
    return type(parameter).__name__ == "MapParameter"
