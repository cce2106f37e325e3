"""The inference engine: one graph with its KV cache on a device, shared by sequences that are swapped in and out."""
