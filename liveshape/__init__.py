"""liveshape: PyTorch programs on any GPU, right at every live shape."""
