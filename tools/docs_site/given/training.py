# What the documentation's sketches of a training take as given: a network with its loss, and
# data, here with an end.
import os
import sys

sys.path.insert(0, os.environ["EXAMPLES"])

from clicks import Clicks
from mindspore.dataset import GeneratorDataset
from wide_deep import ClickLoss, WideDeep

_clicks = Clicks()


def WideDeepWithLoss():
    return ClickLoss(WideDeep(_clicks.vocabulary))


dataset = _clicks.some(20)
batches = list(_clicks.batches(20))


def _once():
    if not _once.began:  # a stream that is dry when it has been read
        _once.began = True
        yield from batches


_once.began = False
stream = GeneratorDataset(_once, list(batches[0]._fields), shuffle=False)
