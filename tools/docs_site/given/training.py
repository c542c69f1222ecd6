# What the documentation's sketches of a training take as given: a network with its loss, and
# data, here with an end.
from clicks import Clicks
from docs_site.ended import ended
from wide_deep import ClickLoss, WideDeep

_clicks = Clicks()


def WideDeepWithLoss():
    return ClickLoss(WideDeep(_clicks.vocabulary))


dataset = _clicks.some(20)
batches = list(_clicks.batches(20))
stream = ended(batches, batches[0]._fields)
