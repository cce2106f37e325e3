"""The compute kernels, one file each."""
