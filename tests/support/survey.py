"""Print what a `.pte` holds: the outer instructions of every method and the operator chain of every Vulkan delegate.

    python -m tests.support.survey file.pte [file.pte ...]
    python -m tests.support.survey --programs            a table of all test programs
    python -m tests.support.survey unary broadcast       test programs by name

It reads with ExecuTorch's own deserializers, so that it can also judge ours.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.exporting import quiet

with quiet():
    from executorch.backends.vulkan.serialization import vulkan_graph_schema as vk
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (
        extract_vk_flatbuffer,
        flatbuffer_to_vk_graph,
    )
    from executorch.exir import schema
    from executorch.exir._serialize._program import deserialize_pte_binary

DTYPES = {
    "FLOAT32": "f32",
    "FLOAT16": "f16",
    "INT32": "i32",
    "INT64": "i64",
    "BOOL": "bool",
    "UINT8": "u8",
    "INT8": "i8",
}
SCALAR_TYPES = {
    "FLOAT": "f32",
    "HALF": "f16",
    "INT": "i32",
    "LONG": "i64",
    "BOOL": "bool",
    "DOUBLE": "f64",
    "BYTE": "u8",
}


@dataclass
class Method:
    """One execution plan: its outer instructions as lines, and the graphs of its delegates."""

    name: str
    plan: schema.ExecutionPlan
    graphs: list[vk.VkGraph] = field(default_factory=list)

    def kernels(self) -> Counter[str]:
        """The operators outside the delegates, by name."""
        return Counter(
            operator_name(self.plan, instruction.instr_args.op_index)
            for chain in self.plan.chains
            for instruction in chain.instructions
            if isinstance(instruction.instr_args, schema.KernelCall)
        )

    def operators(self) -> Counter[str]:
        """The operators inside the delegates, by name."""
        return Counter(call.name for graph in self.graphs for call in graph.chain)

    def dtypes(self) -> set[str]:
        return {
            DTYPES.get(value.value.datatype.name, value.value.datatype.name)
            for graph in self.graphs
            for value in graph.values
            if isinstance(value.value, vk.VkTensor)
        }


def read(data: bytes) -> list[Method]:
    """The methods of a file, in file order."""
    program = deserialize_pte_binary(data).program
    methods = []
    for plan in program.execution_plan:
        method = Method(plan.name, plan)
        for delegate in plan.delegates:
            blob = program.backend_delegate_data[delegate.processed.index].data
            method.graphs.append(flatbuffer_to_vk_graph(extract_vk_flatbuffer(bytes(blob))))
        methods.append(method)
    return methods


def operator_name(plan: schema.ExecutionPlan, index: int) -> str:
    operator = plan.operators[index]
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def describe(method: Method) -> Iterator[str]:
    """A method as lines of text: values by id, so that a line can be followed to the next."""
    plan = method.plan
    yield f"method {method.name}: inputs {plan.inputs} outputs {plan.outputs} buffers {plan.non_const_buffer_sizes}"
    for position, chain in enumerate(plan.chains):
        for number, instruction in enumerate(chain.instructions):
            yield f"  {f'{position}.' if position else ''}{number:<3} {outer_instruction(plan, instruction.instr_args)}"
    for index, graph in enumerate(method.graphs):
        inputs, outputs = numbered(graph, graph.input_ids), numbered(graph, graph.output_ids)
        yield f"  delegate {index}: inputs {inputs} outputs {outputs}"
        for call in graph.chain:
            yield f"    {call.name}({', '.join(inner_value(graph, value) for value in call.args)})"


def outer_instruction(plan: schema.ExecutionPlan, call: Any) -> str:
    match call:
        case schema.KernelCall():
            arguments = ", ".join(outer_value(plan, value) for value in call.args)
            return f"{operator_name(plan, call.op_index)}({arguments})"
        case schema.DelegateCall():
            return f"DELEGATE {call.delegate_index}({', '.join(outer_value(plan, value) for value in call.args)})"
        case schema.MoveCall():
            return f"MOVE {outer_value(plan, call.move_from)} -> {outer_value(plan, call.move_to)}"
        case schema.JumpFalseCall():
            return f"JUMP to {call.destination_instruction} if not {outer_value(plan, call.cond_value_index)}"
        case schema.FreeCall():
            return f"FREE {outer_value(plan, call.value_index)}"
    raise TypeError(f"unknown instruction {call!r}")


def outer_value(plan: schema.ExecutionPlan, index: int) -> str:
    value = plan.values[index].val
    match value:
        case schema.Tensor():
            dtype = SCALAR_TYPES.get(value.scalar_type.name, value.scalar_type.name)
            dynamic = "~" if value.shape_dynamism else ""
            constant = " const" if value.data_buffer_idx and value.allocation_info is None else ""
            state = " state" if value.data_buffer_idx and value.allocation_info is not None else ""
            return f"%{index}:{dtype}{value.sizes}{dynamic}{constant}{state}"
        case schema.TensorList() | schema.OptionalTensorList():
            return f"%{index}:[{', '.join('None' if item < 0 else outer_value(plan, item) for item in value.items)}]"
        case schema.IntList():
            return f"%{index}:IntList[{', '.join(outer_value(plan, item) for item in value.items)}]"
        case schema.Null():
            return "Null"
    return f"%{index}:{plain(value)}"


def inner_value(graph: vk.VkGraph, index: int) -> str:
    value = graph.values[index].value
    match value:
        case vk.VkTensor():
            dtype = DTYPES.get(value.datatype.name, value.datatype.name)
            staging = DTYPES.get(value.staging_datatype.name, value.staging_datatype.name)
            staged = f"(staged {staging})" if staging != dtype else ""
            return f"%{index}:{dtype}{value.dims}{staged}{' const' if value.constant_id >= 0 else ''}"
        case vk.ValueList():
            return f"%{index}:ValueList[{', '.join(inner_value(graph, item) for item in value.items)}]"
        case vk.SymInt():
            return f"%{index}:SymInt"
        case vk.Null():
            return "Null"
    return plain(value)


def plain(value: Any) -> str:
    """A scalar or a list of scalars with the name of its kind: Int(3), IntList([0, 2])."""
    content = next(iter(vars(value).values()), "")
    return f"{type(value).__name__}({content!r})"


def numbered(graph: vk.VkGraph, indices: list[int]) -> str:
    return f"[{', '.join(inner_value(graph, index) for index in indices)}]"


def table(files: dict[str, Path]) -> Iterator[str]:
    """A markdown table: what each file holds inside and outside its delegates."""
    yield "| program | delegates | operators inside | operators outside | dtypes inside |"
    yield "| --- | --- | --- | --- | --- |"
    for name, path in files.items():
        for method in read(path.read_bytes()):
            title = name if method.name == "forward" else f"{name}.{method.name}"
            inside, outside = counted(method.operators()), counted(method.kernels())
            yield f"| {title} | {len(method.graphs)} | {inside} | {outside} | {' '.join(sorted(method.dtypes()))} |"


def counted(names: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{name} {count}" for name, count in sorted(names.items()))


def main(arguments: list[str]) -> None:
    from tests.support.programs import methods_programs, programs

    known = {**programs(), **methods_programs()}
    if arguments == ["--programs"]:
        print("\n".join(table({name: program.pte() for name, program in known.items()})))
        return
    for argument in arguments:
        path = known[argument].pte() if argument in known else Path(argument)
        print(f"# {path}")
        for method in read(path.read_bytes()):
            print("\n".join(describe(method)))


if __name__ == "__main__":
    main(sys.argv[1:])
