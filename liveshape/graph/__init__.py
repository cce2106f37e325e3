"""What a program is: tensors with a bound, live scalars, nodes in program order."""

from liveshape.graph.graph import Argument, Graph, Limits, Node, Shape, Storage, SymInt, Tensor, Value

__all__ = ["Argument", "Graph", "Limits", "Node", "Shape", "Storage", "SymInt", "Tensor", "Value"]
