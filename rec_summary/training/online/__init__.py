"""Online training: `RecModel`, its loop, its sources and its signals."""
