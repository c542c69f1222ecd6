"""What reading costs: exports, readers, followers, TensorBoard, fleets."""
