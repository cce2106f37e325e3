"""A method of a file as one graph: delegates inlined, then made simpler."""
