"""What a graph needs and how it runs, as a value: memory, classes of nodes, routes."""
