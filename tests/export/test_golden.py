"""The writer against torch and executorch: the same operators on the same constants, and files that ExecuTorch reads.

What differs on purpose, and is taken out before graphs are compared (`simplified`):
- views that change nothing, which the exporter leaves behind linear layers, are not written, and a view of a view may
  be; what counts is how operators see what other operators made;
- what layers compute of the same rows (rows of two dims, scales of rounded rows) is written once;
- 4-bit tables have rows in fours like linear layers, so that a tied one is stored once;
- constants have the name of their tensor instead of a checksum, and stand in the graph where they are used.
Scales may differ in their last bit: sums are rounded in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.export.folder import Settings
from liveshape.export.model.config import Quantization
from liveshape.formats import open_program, parse_vkgraph
from liveshape.formats.vkgraph import ValueList, VkGraph, VkSymInt, VkTensor
from tests.export.exported import CONTEXT, MAX, exported, exported_by_torch
from tests.export.tiny import DEEP, LLAMA, QWEN2, QWEN3

BOUNDS: dict[str, Any] = {"max_seq": MAX, "max_context": CONTEXT}
ONE_LAYER = {"num_hidden_layers": 1}
# Rows of 100 weights: groups of 20, and bytes that fill up words.
NARROW = {
    **LLAMA,
    **ONE_LAYER,
    "hidden_size": 100,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "vocab_size": 131,
}
# A way through torch takes ten seconds and more, so `make test` goes one of them.
SLOW = pytest.mark.slow
CASES: Mapping[str, tuple[dict[str, Any], Settings, Any]] = {
    "llama_one_layer_4w": ({**LLAMA, **ONE_LAYER}, Settings(Quantization("4w"), **BOUNDS), ()),
    "llama_4w": (LLAMA, Settings(Quantization("4w"), **BOUNDS), SLOW),
    "qwen2_4w": (QWEN2, Settings(Quantization("4w", embedding=False), **BOUNDS), SLOW),
    "qwen3_8da4w": (QWEN3, Settings(Quantization("8da4w"), **BOUNDS), SLOW),
    "llama_none_full": (LLAMA, Settings(Quantization("none"), full_logits=True, **BOUNDS), SLOW),
    "deep_4w": (DEEP, Settings(Quantization("4w", 16), **BOUNDS), SLOW),
    "narrow_8da4w_full": ({**NARROW}, Settings(Quantization("8da4w"), full_logits=True, **BOUNDS), SLOW),
    "qwen2_none": ({**QWEN2, **ONE_LAYER}, Settings(Quantization("none"), **BOUNDS), SLOW),
    "llama_half": ({**LLAMA, **ONE_LAYER}, Settings(Quantization("4w"), half=True, **BOUNDS), SLOW),
    "qwen3_none_half": ({**QWEN3, **ONE_LAYER}, Settings(Quantization("none"), half=True, **BOUNDS), SLOW),
}


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, _, marks) in CASES.items()], scope="module")
def files(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """By the writer, and by torch."""
    settings, options, _ = CASES[request.param]
    return exported(request.param, settings, options), exported_by_torch(request.param, settings, options)


@dataclass(frozen=True)
class Weights:
    """The data of a constant."""

    dtype: str
    staging: str | None
    array: np.ndarray[Any, Any]


Call = tuple[str, tuple[Any, ...], tuple[Any, ...]]


def simplified(path: Path) -> list[Call]:
    """Every operator with what it reads and what it makes, in terms that do not depend on how values are numbered."""
    with open_program(path) as program:
        (delegate,) = program.method("forward").delegates
        graph = parse_vkgraph(delegate.blob)
        data = {key: bytes(value) for key, value in program.named_data.items()}
    names: dict[int, Any] = {value: ("input", index) for index, value in enumerate(graph.input_ids)}
    seen: dict[Any, list[Any]] = {}
    shapes: dict[Any, Any] = {}  # of what is viewed
    calls: list[Call] = []
    for call in graph.chain:
        *args, out = call.args
        outputs = out_ids(graph, out)
        read = tuple(described(graph, data, names, index) for index in args)
        if call.name == "aten.view_copy.default":
            source = read[0][1] if read[0][0] == "view" else read[0]
            shapes[source] = shapes.get(source, shape_of(graph, args[0]))
            names[out] = source if shapes[source] == shape_of(graph, out) else ("view", source, read[1])
            continue
        key = call.name, tuple(map(repr, read)), tuple(shape_of(graph, each) for each in outputs)
        if key not in seen:
            seen[key] = [("made", len(calls), place) for place, _ in enumerate(outputs)]
            calls.append((call.name, read, tuple(kind_of(graph, each) for each in outputs)))
        names.update(zip(outputs, seen[key], strict=True))
    calls.append(("outputs", tuple(names[index] for index in graph.output_ids), ()))
    return calls


def out_ids(graph: VkGraph, out: int) -> tuple[int, ...]:
    value = graph.values[out]
    return value.ids if isinstance(value, ValueList) else (out,)


def shape_of(graph: VkGraph, index: int) -> Any:
    value = graph.values[index]
    return value.shape if isinstance(value, VkTensor) else None


def kind_of(graph: VkGraph, index: int) -> Any:
    value = graph.values[index]
    return (value.dtype, value.shape, value.staging_dtype) if isinstance(value, VkTensor) else type(value)


def described(graph: VkGraph, data: Mapping[str, bytes], names: dict[int, Any], index: int) -> Any:
    value = graph.values[index]
    if isinstance(value, ValueList):
        return tuple(described(graph, data, names, each) for each in value.ids)
    if isinstance(value, VkTensor) and value.constant_id >= 0:
        if value.mem_obj_id >= 0:  # a state: one that begins the same is still another
            return names.setdefault(index, ("state", len([each for each in names.values() if each[0] == "state"])))
        content = data[str(graph.constants[value.constant_id].key)]
        return Weights(value.dtype, value.staging_dtype, np.frombuffer(content, value.dtype).reshape(value.shape))
    return names[index] if isinstance(value, (VkTensor, VkSymInt)) else value


def same(ours: Any, theirs: Any, fours: bool) -> bool:
    """`fours`: a table whose rows ours fills up with zeros."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(
            same(one, other, fours) for one, other in zip(ours, theirs, strict=True)
        )
    if not isinstance(ours, Weights):
        return bool(ours == theirs)
    if (ours.dtype, ours.staging) != (theirs.dtype, theirs.staging):
        return False
    array = ours.array
    if fours and len(array) != len(theirs.array):
        # A byte of two zeros is 0x88.
        assert not (array[len(theirs.array) :] != (0x88 if array.dtype == np.uint8 else 0)).any()
        array = array[: len(theirs.array)]
    last_bit = 0 if array.dtype.kind in "iu" else 1e-3 if array.dtype == np.float16 else 5e-7
    return array.shape == theirs.array.shape and np.allclose(array, theirs.array, rtol=last_bit, atol=0)


def test_operators_and_constants_are_those_of_torch(files: tuple[Path, Path]) -> None:
    ours, theirs = map(simplified, files)
    assert [name for name, _, _ in ours] == [name for name, _, _ in theirs]
    for (name, read, made), (_, golden_read, golden_made) in zip(ours, theirs, strict=True):
        assert made == golden_made, name
        for index, (one, other) in enumerate(zip(read, golden_read, strict=True)):
            assert same(one, other, "embedding" in name), f"{name}, argument {index}"


def test_methods_are_those_of_torch(files: tuple[Path, Path]) -> None:
    with open_program(files[0]) as ours, open_program(files[1]) as theirs:
        assert [plan.name for plan in ours.plans] == [plan.name for plan in theirs.plans]
        for one, other in zip(ours.plans[1:], theirs.plans[1:], strict=True):
            assert (one.values, one.inputs, one.outputs) == (other.values, other.inputs, other.outputs)
            assert one.instructions == other.instructions == ()
        one, other = ours.plans[0], theirs.plans[0]
        assert (one.inputs, one.outputs, one.instructions) == (other.inputs, other.outputs, other.instructions)
        assert one.delegates[0].compile_specs == other.delegates[0].compile_specs
        for tensor, golden in zip(one.values, other.values, strict=True):
            for name in ("dtype", "shape", "dim_order", "dynamism", "data_index", "storage_offset"):
                assert getattr(tensor, name) == getattr(golden, name)


def test_executorch_reads_the_program(files: tuple[Path, Path]) -> None:
    """Its own deserializers: the program, and the graph of the delegate with its header."""
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (
        extract_vk_flatbuffer,
        flatbuffer_to_vk_graph,
    )
    from executorch.exir._serialize._program import deserialize_pte_binary

    found, golden = (deserialize_pte_binary(path.read_bytes()) for path in files)
    for ours, theirs in zip(found.program.execution_plan, golden.program.execution_plan, strict=True):
        assert ours.container_meta_type == theirs.container_meta_type
        assert ours.chains == theirs.chains
    (delegate,) = found.program.backend_delegate_data
    with open_program(files[0]) as program:
        assert bytes(program.method("forward").delegates[0].blob) == bytes(delegate.data)
        mine = parse_vkgraph(program.method("forward").delegates[0].blob)
        keys = {constant.key for constant in mine.constants}
        assert keys == set(program.named_data)
        assert keys == set(found.named_data.pte_data)
        for key, entry in found.named_data.pte_data.items():
            assert bytes(found.named_data.buffers[entry.buffer_index]) == bytes(program.named_data[key])
    graph = flatbuffer_to_vk_graph(extract_vk_flatbuffer(bytes(delegate.data)))
    assert [(call.name, tuple(call.args)) for call in graph.chain] == [(call.name, call.args) for call in mine.chain]
    assert len(graph.values) == len(mine.values)
    assert (tuple(graph.input_ids), tuple(graph.output_ids)) == (mine.input_ids, mine.output_ids)
    assert [(each.named_key, each.length) for each in graph.constants] == [(c.key, c.length) for c in mine.constants]


def test_memory_is_shared_by_what_is_never_alive_together(files: tuple[Path, Path]) -> None:
    """As few objects as the exporter takes, and none is written while something in it is still to be read."""
    with open_program(files[0]) as ours, open_program(files[1]) as theirs:
        graph = parse_vkgraph(ours.method("forward").delegates[0].blob)
        golden = parse_vkgraph(theirs.method("forward").delegates[0].blob)
    held: dict[int, int] = {}
    last = {index: at for at, call in enumerate(graph.chain) for arg in call.args for index in out_ids(graph, arg)}
    for at, call in enumerate(graph.chain):
        for index in out_ids(graph, call.args[-1]):
            memory = memory_of(graph, index)
            if memory >= 0:
                assert memory not in held or last[held[memory]] < at, f"{call.name} overwrites value {held[memory]}"
                held[memory] = index
    # Inputs and outputs have objects of their own.
    assert len(objects(graph)) <= len(objects(golden)) + 3


def memory_of(graph: VkGraph, index: int) -> int:
    value = graph.values[index]
    return value.mem_obj_id if isinstance(value, VkTensor) else -1


def objects(graph: VkGraph) -> set[int]:
    return {memory_of(graph, index) for index in range(len(graph.values))} - {-1}
