"""Loss landscapes: the loss on a plane through the space of the parameters of a network.

    checkpoints ─► plane ─► points ─► model, evaluated in processes ─► store ─► record

Only `mindspore_model`, which evaluates the network, loads MindSpore.
"""

from rec_summary.old_mindspore import prepare

prepare()
