"""A .wgsl file as a callable, and what operators ask for."""

from liveshape.kernels.kernel import Dispatch, Kernel
from liveshape.kernels.variant import Variant, specialize

__all__ = ["Dispatch", "Kernel", "Variant", "specialize"]
