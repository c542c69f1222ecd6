"""The embedding tables of a network of MindSpore."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from mindspore import Tensor, nn, ops

from rec_summary.arrays import Array
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.rows import EmbeddingTable
from rec_summary.training.tensors import as_array, is_on_cpu

_LAYERS: Final = "mindspore.nn.layer."


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
            read = functools.partial(_gather, parameter, is_open=size is None)
            matched[name] = EmbeddingTable(read, size)
        else:
            what = f"{len(candidates) or 'no'} tables have the name {name!r}"
            troubles.report(
                "recommender metrics: tables",
                f"{what}; its ids are counted, its rows are not sampled. The tables are: "
                f"{', '.join(tables) or 'there are none'}",
            )
            matched[name] = EmbeddingTable(None)
    return matched


def _named(name: str, tables: Mapping[str, Any]) -> list[Any]:
    """Returns the tables that have a name as a part of theirs, at the start if there are some."""
    # A training step puts a prefix before names: "network.item_embedding.embedding_table".
    first = [table for full, table in tables.items() if full.startswith(f"{name}.")]
    return first or [table for full, table in tables.items() if f".{name}." in f"{full}."]


def _gather(parameter: Any, rows: Array, *, is_open: bool) -> Any:
    """Returns the values of rows of a parameter."""
    if is_open:
        return parameter.get(Tensor(rows, parameter.key_tensor.dtype), False)
    if is_on_cpu():
        # A view of the live table; fancy indexing copies only the rows.
        return as_array(parameter, parameter.name)[rows]
    return ops.gather(parameter, Tensor(rows), 0)


def network_tables(
    network: nn.Cell | None, names: Iterable[str], troubles: Troubles
) -> dict[str, EmbeddingTable]:
    """Returns the tables of a network; see `find_tables`."""
    if network is None:
        return find_tables(names, [], troubles)
    return find_tables(names, network_parameters(network), troubles, layer_weights(network))


def _is_matrix(parameter: Any) -> bool:
    return len(parameter.shape) == 2 or _is_map(parameter)


def _is_map(parameter: object) -> bool:
    return type(parameter).__name__ == "MapParameter"
