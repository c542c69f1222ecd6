"""Loss landscapes: the loss on a plane through the space of a network's parameters.

    checkpoints ─► trajectory ─► plane ─► points ─► evaluator, in processes ─► store ─► record

Nothing here loads MindSpore but `mindspore_model`, which evaluates a network of the user's.
"""

from rec_summary.old_mindspore import prepare

prepare()
