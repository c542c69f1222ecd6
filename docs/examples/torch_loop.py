"""A PyTorch loop with embedding tables as TorchRec has them, recorded with `SummaryRecord`."""

from __future__ import annotations

import torch
from clicks import Batch, Clicks, Vocabulary, arguments
from torch import Tensor, nn

from rec_summary import EmbeddingTable, RecommenderMetrics, SummaryRecord


class ClickModel(nn.Module):
    """An MLP on bags of embeddings."""

    def __init__(self, vocabulary: Vocabulary, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                "user": nn.EmbeddingBag(vocabulary.users, width, mode="sum"),
                "item": nn.EmbeddingBag(vocabulary.items, width, mode="sum"),
                "context": nn.EmbeddingBag(sum(vocabulary.context_sizes), width, mode="sum"),
            }
        )
        for table in self.tables.values():
            nn.init.normal_(table.weight, std=0.1)
        self.deep = nn.Sequential(nn.Linear(3 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids: dict[str, Tensor]) -> Tensor:
        """Returns the log-odds of a click, [B]; `ids` are [B, n] for each table."""
        bags = [table(ids[name]) for name, table in self.tables.items()]
        return self.deep(torch.cat(bags, 1)).squeeze(1)


def read(table: nn.EmbeddingBag) -> EmbeddingTable:
    """Returns how the sampled rows of a table are read; on a GPU, add `.cpu()`."""
    return EmbeddingTable(
        lambda rows: table.weight[torch.as_tensor(rows)].detach(), size=table.num_embeddings
    )


def tensors(batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the ids by table, and the labels."""
    ids = {"user": batch.user[:, None], "item": batch.item[:, None], "context": batch.context}
    return {name: torch.as_tensor(each) for name, each in ids.items()}, torch.as_tensor(batch.click)


def main() -> None:
    """Trains `--steps` steps, or until `rec-summary control --stop`."""
    options = arguments(__doc__, "records/torch_loop", 500)
    torch.manual_seed(1)
    torch.set_num_threads(1)  # with batches as small as these, more wait for each other
    clicks = Clicks(options.data)
    model = ClickModel(clicks.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = nn.BCEWithLogitsLoss()
    with SummaryRecord(
        options.records,
        hyper_parameters={"model": "bags and MLP", "optimizer": "Adam", "rate": 5e-3},
        recommender=RecommenderMetrics(
            predictions="odds",
            labels="click",
            logits=True,
            users="user",
            ids={name: name for name in model.tables},
            report_steps=100,
        ),
        tables={name: read(table) for name, table in model.tables.items()},
    ) as record:
        stream = record.batches(clicks.batches(options.steps))  # measures the wait for data
        for step, batch in enumerate(stream, start=1):
            ids, click = tensors(batch)
            odds = model(ids)
            loss = loss_of(odds, click)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.observe(odds=odds, click=click, **ids)
            record.add_value("scalar", "loss", loss)
            record.record(step)
            if record.should_stop:
                break
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
