"""Values from inside a network of the user, by name: probes, and the gradients of optimizers."""
