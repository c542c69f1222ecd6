"""Quality of an order: of the examples of a list, and of the candidates of an example."""
