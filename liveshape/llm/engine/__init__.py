"""One graph with its KV cache on a device, and the texts that take turns at it."""
