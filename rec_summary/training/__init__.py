"""Recording inside the training job; with one evaluator, the only code that loads MindSpore."""

from rec_summary.old_mindspore import prepare

prepare()
