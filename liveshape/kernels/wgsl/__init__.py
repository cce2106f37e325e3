"""The compute kernels: a folder for each family, a file for each kernel, and what they include."""
