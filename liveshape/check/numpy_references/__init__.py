"""What operators of aten give, in numpy and in float64, for a check where torch is not installed; a file per family.

A function takes the arguments of a node, tensors as arrays at their live shapes. Pointwise operators are not here: they
are evaluated as the expressions that they declare. Operators that have none are counted and named by the check.
"""

from __future__ import annotations

from liveshape.check.numpy_references import (
    image_references,
    movement_references,
    product_references,
    reduction_references,
)
from liveshape.check.numpy_references.reference_table import NUMPY, base_name

FAMILIES = (
    image_references,
    movement_references,
    product_references,
    reduction_references,
)

__all__ = ["FAMILIES", "NUMPY", "base_name"]
