"""What recording costs: trainings, metrics, landscapes, runs without an end."""
