"""Parsers to frozen dataclasses: `.pte` programs, their Vulkan graphs, `.ptd` tensor data. No GPU, no torch."""

from liveshape.formats.execution_plan import (
    Delegate,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    IntListRef,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorListRef,
    TensorListRef,
    TensorSpec,
    Value,
)
from liveshape.formats.ptd import TensorData, TensorEntry, open_tensor_data
from liveshape.formats.pte import PteFile, open_program
from liveshape.formats.signature import InputSignature, Signature, Size
from liveshape.formats.vkgraph import (
    OperatorCall,
    ValueList,
    VkConstant,
    VkGraph,
    VkSymInt,
    VkTensor,
    VkValue,
    parse_vkgraph,
)

__all__ = [
    "Delegate",
    "DelegateCall",
    "ExecutionPlan",
    "FreeCall",
    "InputSignature",
    "Instruction",
    "IntListRef",
    "JumpFalseCall",
    "KernelCall",
    "MoveCall",
    "OperatorCall",
    "OptionalTensorListRef",
    "PteFile",
    "Signature",
    "Size",
    "TensorData",
    "TensorEntry",
    "TensorListRef",
    "TensorSpec",
    "Value",
    "ValueList",
    "VkConstant",
    "VkGraph",
    "VkSymInt",
    "VkTensor",
    "VkValue",
    "open_program",
    "open_tensor_data",
    "parse_vkgraph",
]
