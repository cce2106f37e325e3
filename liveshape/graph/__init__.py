"""What a program is: tensors with a bound, live scalars, nodes in program order."""

from liveshape.graph.graph import Argument, Graph, Node, Shape, Storage, SymInt, Tensor, Value
from liveshape.graph.limits import Limits

__all__ = ["Argument", "Graph", "Limits", "Node", "Shape", "Storage", "SymInt", "Tensor", "Value"]
