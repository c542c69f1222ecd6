"""Records in TensorBoard. Only this package loads TensorBoard."""
