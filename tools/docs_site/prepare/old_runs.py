"""A store of 1,000 runs as MindSpore's own collector leaves them: a year, a team, a trial each."""

import json
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from rec_summary._pb.lineage_pb2 import EvaluationLineage
from rec_summary.records.writing.run_writer import FILE_VERSION
from tests.support.record_dirs import (
    event,
    lineage,
    scalar,
    summary_name,
    train,
    write_payloads,
)

chance = random.Random(1)
for number in range(1000):
    began = 1_650_000_000 + 80_000 * number
    rate = 10 ** chance.uniform(-5, 0)
    described = train()
    hyper = described.hyper_parameters
    hyper.optimizer = chance.choice(["Adam", "Momentum", "FTRL"])
    hyper.learning_rate, hyper.batch_size = round(rate, 6), chance.choice([64, 256, 1024])
    fit = math.exp(-((math.log10(rate) + 2.5 - (hyper.optimizer == "FTRL")) ** 2))
    described.algorithm.loss = 0.69 - 0.2 * fit
    losses = [0.69 - 0.2 * fit * (1 - math.exp(-step / 300)) for step in range(0, 1000, 10)]
    metric = json.dumps({"auc": 0.5 + 0.28 * fit + chance.gauss(0, 0.004)})
    folder = Path("store", str(2022 + number // 395), f"team_{number % 7}", f"trial_{number:04}")
    values = [
        event(10 * index + 1, scalar("loss/auto", loss), at=began + index)
        for index, loss in enumerate(losses)
    ]
    lineages = [
        lineage(began + 100, train_lineage=described),
        lineage(began + 101, evaluation_lineage=EvaluationLineage(metric=metric)),
    ]
    name = summary_name(began)
    for path, events in ((folder / name, values), (folder / f"{name[:-3]}_lineage", lineages)):
        first = type(events[0])(wall_time=began, version=FILE_VERSION)
        write_payloads(path, *(message.SerializeToString() for message in (first, *events)))
