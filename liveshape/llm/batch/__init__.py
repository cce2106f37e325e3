"""Many sequences in one graph: a paged KV cache, the scheduler of steps, and the engine that runs them."""
