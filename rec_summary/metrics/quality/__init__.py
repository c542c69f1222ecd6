"""Quality of scores: AUC, log loss, calibration, grouped AUC, rating errors."""
