"""The operator library: one file per family, one generator per operator. Importing this package fills `OPS`."""

from liveshape.ops import control, elementwise, normalization, symint, views
from liveshape.ops.registry import OPS, Op, op

__all__ = ["OPS", "Op", "control", "elementwise", "normalization", "op", "symint", "views"]
