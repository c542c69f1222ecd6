"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes single examples slow; no test measures time.
settings.register_profile("rec_summary", deadline=None)
settings.load_profile("rec_summary")

pytest_plugins = ["tests.support.s3", "tests.support.tensorboard_servers"]
