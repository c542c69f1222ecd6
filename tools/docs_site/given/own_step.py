# What the page takes as given for a training step of one's own: a network, an optimizer, and data,
# here with an end.
import os
import sys

sys.path.insert(0, os.environ["EXAMPLES"])

from clicks import Clicks
from mindspore.dataset import GeneratorDataset
from wide_deep import WideDeep

_clicks = Clicks()
batches = list(_clicks.batches(20))
scorer = WideDeep(_clicks.vocabulary)


def _once():
    if not _once.began:  # a stream that is dry when it has been read
        _once.began = True
        yield from batches


_once.began = False
stream = GeneratorDataset(_once, list(batches[0]._fields), shuffle=False)
