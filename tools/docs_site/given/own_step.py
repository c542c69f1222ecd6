# What the page takes as given for a training step of one's own: a network, an optimizer, and data,
# here with an end.
from clicks import Clicks
from docs_site.ended import ended
from wide_deep import WideDeep

_clicks = Clicks()
batches = list(_clicks.batches(20))
scorer = WideDeep(_clicks.vocabulary)
stream = ended(batches, batches[0]._fields)
