# What the documentation's loop takes as given: a model of any framework, and clicks.
from clicks import Clicks
from numpy_loop import MatrixFactorisation

_clicks = Clicks()
_model = MatrixFactorisation(_clicks.vocabulary)
items = _model.items
stream = list(_clicks.batches(20))


def train(batch):
    return _model.train(batch.user, batch.item, batch.click)
