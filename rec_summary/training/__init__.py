"""The room that runs inside the user's training job: the only one that may import mindspore."""
