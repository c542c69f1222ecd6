"""Online training: `RecModel`, its loop and its sources."""
