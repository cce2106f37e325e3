"""What a program is: tensors with a bound, live scalars, nodes in program order."""

from liveshape.graph.graph import Argument, Graph, Node, Shape, SymInt, Tensor, Value
from liveshape.graph.limits import Limits, MatrixShape

__all__ = ["Argument", "Graph", "Limits", "MatrixShape", "Node", "Shape", "SymInt", "Tensor", "Value"]
