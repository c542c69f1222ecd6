# What the page about recommender metrics takes as given: a network that also returns its scores
# and labels, an optimizer, and data, here with an end.
from clicks import Clicks
from docs_site.ended import ended
from mindspore import nn, ops
from wide_deep import WideDeep

_clicks = Clicks()
batches = list(_clicks.batches(20))


class Clicking(nn.Cell):
    def __init__(self):
        super().__init__(auto_prefix=False)
        self.scorer = WideDeep(_clicks.vocabulary)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, user, item, context, genres, crosses, click):
        odds = self.scorer(user, item, genres, crosses)
        return self.loss(odds, click), ops.sigmoid(odds), click


network = Clicking()
optimizer = nn.Adam(network.trainable_params(), 1e-3)
stream = ended(batches, batches[0]._fields)
