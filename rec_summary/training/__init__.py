"""The room that runs inside the user's training job: the only one that may import mindspore."""

from rec_summary.old_mindspore import prepare

prepare()
