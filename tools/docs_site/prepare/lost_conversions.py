"""A model with two heads; from step 504 on, 70 % of the conversions of Spain are lost."""

import time

import numpy as np

from rec_summary import RecommenderMetrics, Slice, SummaryRecord, Task

BATCH, STEPS, BROKEN_AT = 1_024, 600, 504
COUNTRIES = ["BR", "DE", "ES", "FR", "IN", "JP", "MX", "US"]
SHARES = np.array([14, 12, 10, 12, 18, 10, 8, 16]) / 100

metrics = RecommenderMetrics(
    tasks={
        "ctr": Task(predictions="click_odds", labels="click", logits=True),
        "cvr": Task(predictions="sale_odds", labels="sale", mask="click", logits=True),
    },
    slices={"country": Slice("country", names=dict(enumerate(COUNTRIES)))},
    last=[50_000],
    report_steps=25,
)
random = np.random.default_rng(1)
with SummaryRecord("records/run-1", recommender=metrics) as record:
    for step in range(1, STEPS + 1):
        country = random.choice(len(COUNTRIES), BATCH, p=SHARES)
        tastes = random.normal(size=(2, BATCH)).astype(np.float32)
        click_odds, sale_odds = 1.2 * tastes[0] - 1.5, tastes[1] - 2
        click, sale = random.random((2, BATCH)) < 1 / (
            1 + np.exp(-np.array([click_odds, sale_odds]))
        )
        sale &= click
        if step >= BROKEN_AT:
            is_lost = (country == COUNTRIES.index("ES")) & (random.random(BATCH) < 0.7)
            sale &= ~is_lost
        labels = {"click": click.astype(np.float32), "sale": sale.astype(np.float32)}
        record.observe(country=country, click_odds=click_odds, sale_odds=sale_odds, **labels)
        loss = np.logaddexp(0, click_odds) - click * click_odds
        record.add_value("scalar", "loss", float(loss.mean()))
        record.record(step)
        time.sleep(0.02)  # a step takes some time
