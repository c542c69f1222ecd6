"""A click model beside the one that served the items; it is better, but not in TR."""

import time
from pathlib import Path

import numpy as np

from rec_summary import Gate, RecommenderMetrics, Slice, SummaryRecord

BATCH, STEPS = 1_024, 600
COUNTRIES = ["DE", "ES", "FR", "IN", "TR", "US"]
SHARES = np.array([20, 16, 18, 22, 6, 18]) / 100

metrics = RecommenderMetrics(
    predictions="score",
    labels="click",
    served="served_score",
    slices={"country": Slice("country", names=dict(enumerate(COUNTRIES)))},
    report_steps=20,
)
random = np.random.default_rng(1)
directory = Path("records/ctr")
with SummaryRecord(directory, recommender=metrics, latest_good=Gate()) as record:
    (directory / "checkpoints").mkdir()
    for step in range(1, STEPS + 1):
        country = random.choice(len(COUNTRIES), BATCH, p=SHARES)
        odds = random.normal(-2.5, 1, BATCH)
        errors = np.where(COUNTRIES.index("TR") == country, 0.6, 0.2)
        scores = {
            name: 1 / (1 + np.exp(-odds - random.normal(0, 1, BATCH) * each))
            for name, each in (("score", errors), ("served_score", 0.3))
        }
        click = (random.random(BATCH) < 1 / (1 + np.exp(-odds))).astype(np.float32)
        record.observe(country=country, click=click, **scores)
        record.record(step)
        if step % 100 == 0:
            (directory / "checkpoints" / f"rank_0_step_{step}.ckpt").write_bytes(b"")
        time.sleep(0.005)  # a step takes some time
