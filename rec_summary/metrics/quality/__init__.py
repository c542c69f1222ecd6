"""Quality of predictions: AUC, log loss, calibration, grouped AUC, rating errors."""
