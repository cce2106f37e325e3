"""GPUs behind a small protocol; wgpu is one way to reach them."""
