"""Twenty runs with learning rates from 1e-4 to 10."""

import numpy as np
from small_training import train

for number, rate in enumerate(np.geomspace(1e-4, 10, 20).tolist()):
    train(f"records/rate-{number:02}", rate, 1, 40, shuffle=False, collect_freq=20)
