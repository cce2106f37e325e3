"""GPU devices behind a small protocol; wgpu is one backend of it."""
