"""Quality of predictions: AUC, log loss, calibration, grouped AUC, rating errors.

A module for each mergeable state or for what several of them share. They are one room because
slices and users hold the others as their parts.
"""
