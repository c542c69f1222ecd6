"""The demo's model: it learns while it streams, and scores what it has not seen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tools.click_demo import synthetic
from tools.click_demo.stream import ClickStream

mindspore = pytest.importorskip("mindspore")
pytestmark = pytest.mark.mindspore


def test_the_model_beats_guessing_on_what_comes_next() -> None:
    from mindspore import Tensor, nn

    from tools.click_demo import model

    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    scorer = model.WideDeep(synthetic.VOCABULARY)
    step = nn.TrainOneStepCell(model.ClickLoss(scorer), model.adam(scorer)).set_train()
    evaluation = model.ClickEvaluation(scorer)
    stream = iter(ClickStream(lambda: synthetic.impressions(1), synthetic.VOCABULARY, 100))
    for batch in itertools.islice(stream, 600):
        step(*map(Tensor, batch))
    losses, clicks = [], []
    for batch in itertools.islice(stream, 60):
        loss, probability, label = evaluation(*map(Tensor, batch))
        shown = probability.asnumpy()
        assert shown.shape == label.shape
        assert ((shown > 0) & (shown < 1)).all()
        losses.append(float(loss.asnumpy()))
        clicks.append(batch.click)
    rate = np.concatenate(clicks).mean()
    guessing = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    assert np.mean(losses) < guessing - 0.02
