"""Checkpoint files, read without MindSpore, and the names in a directory of checkpoints."""

from typing import Final

FOLDER: Final = "ckpt_dir"
METADATA_NAME: Final = "train_metadata.json"
REPLAY_NAME: Final = "replay.npz"
"""The input rows that a training stores for the loss of its landscapes."""
