"""The record directory on disk: framing, file names, writing, reading, discovery.

Nothing in here knows MindSpore, TensorBoard or what a value means.
"""
