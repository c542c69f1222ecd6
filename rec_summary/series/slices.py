"""Sums of what a task has predicted, for each value of a column, report by report."""

from __future__ import annotations

from dataclasses import dataclass

from rec_summary.arrays import Floats, Integers


@dataclass(frozen=True)
class SliceHistory:
    """The sums of one column of a task; each is over the examples since the report before.

    Attributes:
        task: The name of the task; empty for the unnamed one.
        column: The column of slices; empty for the task as a whole.
        is_partition: Whether each example has one value.
        steps: The steps of the reports, ascending, (t,).
        wall_times: When they were recorded, in seconds since the epoch, (t,).
        values: The values; `other` has all that are not counted on their own, `missing` the
            examples without a value.
        sums: Examples, weight, clicks, predicted clicks, loss, the squares of weight, of clicks
            and of loss by weight (Σw²ℓ), of losses (Σw²ℓ²), of losses of clicks (Σw²ℓy), and of
            errors (Σw²(p - y)²), (t, v, 11).
        order_steps: The steps of detailed reports, (d,).
        orders: The weights of non-clicks and of clicks by cell of the score, rising, since the
            detailed report before, (d, v, 2, cells).
    """

    task: str
    column: str
    is_partition: bool
    steps: Integers
    wall_times: Floats
    values: list[str]
    sums: Floats
    order_steps: Integers
    orders: Floats
