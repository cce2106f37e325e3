"""Weights of an export: the quantization recipe, quantization, packing, and constants that are produced in chunks."""
