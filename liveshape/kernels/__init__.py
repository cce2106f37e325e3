"""A .wgsl file as a callable, and what operators ask for."""

from liveshape.kernels.kernel import Dispatch, Kernel, Variant

__all__ = ["Dispatch", "Kernel", "Variant"]
