"""Programs that are well formed and say something else: other shapes, dtypes, scalars, arguments and operators.

Random bytes seldom get past the reader; these always do, as far as the reader proves what they say.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from liveshape.formats import (
    DelegateCall,
    ExecutionPlan,
    IntListRef,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorListRef,
    TensorListRef,
    TensorSpec,
    ValueList,
    VkGraph,
    VkSymInt,
    VkTensor,
)
from liveshape.ops import OPS

SIZES = (0, 1, 2, 3, 4, 8, 16, 64, 128, 4096, 65537, 1 << 20, (1 << 31) - 1)
DTYPES = ("float32", "float16", "int32", "int64", "bool", "int8", "uint8", "float64")
OUTER_DTYPES = (*DTYPES, "bfloat16", "complex64", "int16")
SCALARS = (None, True, False, 0, 1, -1, 2, 3, 7, 64, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40)
SCALARS += (0.0, 0.5, -1.5, 1e30, float("nan"), float("inf"), "mean", "")  # type: ignore[assignment]
INNER = sorted(name for name in OPS if not name.startswith("liveshape.") and "::" not in name)
OUTER = sorted(name for name in OPS if "::" in name)
FEW = (1, 1, 2, 4)


def changed_shape(chance: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    made = list(shape)
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.random()
        if kind < 0.6 and made:
            made[chance.randrange(len(made))] = chance.choice(SIZES)
        elif kind < 0.75 and made:
            del made[chance.randrange(len(made))]
        elif kind < 0.9:
            made.insert(chance.randrange(len(made) + 1), chance.choice(SIZES))
        else:
            chance.shuffle(made)
    return tuple(made)


def called(chance: random.Random, args: Sequence[int], count: int, values: int) -> tuple[int, ...]:
    """Arguments for an operator that takes so many."""
    made = list(args)
    while len(made) < count:
        made.insert(chance.randrange(len(made) + 1), chance.randrange(values))
    while len(made) > count:
        del made[chance.randrange(len(made))]
    return tuple(made)


def other_argument(chance: random.Random, args: Sequence[int], values: int) -> tuple[int, ...]:
    made = list(args)
    if made:
        made[chance.randrange(len(made))] = chance.randrange(values)
    return tuple(made)


def changed_graph(chance: random.Random, graph: VkGraph) -> VkGraph:
    """A delegate that says something else."""
    values, chain = list(graph.values), list(graph.chain)
    for _ in range(chance.choice(FEW)):
        if chance.random() < 0.45 or not chain:
            place = chance.randrange(len(values))
            values[place] = _changed_inner(chance, values[place])
            continue
        place = chance.randrange(len(chain))
        call, kind = chain[place], chance.random()
        if kind < 0.5:
            chain[place] = replace(call, args=other_argument(chance, call.args, len(values)))
        elif kind < 0.9:
            name = chance.choice(INNER)
            chain[place] = replace(call, name=name, args=called(chance, call.args, OPS[name].arity, len(values)))
        else:
            chain.insert(chance.randrange(len(chain)), call)
    return replace(graph, values=tuple(values), chain=tuple(chain))


def _changed_inner(chance: random.Random, value: Any) -> Any:
    kind = chance.random()
    if isinstance(value, VkTensor):
        if kind < 0.6:
            constant = value.constant_id if chance.random() < 0.5 else -1
            return replace(value, shape=changed_shape(chance, value.shape), constant_id=constant)
        return replace(value, dtype=chance.choice(DTYPES)) if kind < 0.8 else VkSymInt(0)
    if isinstance(value, ValueList):
        return ValueList(chance.choice((value.ids * 2, value.ids[:-1], ())))
    if isinstance(value, tuple):
        drawn = tuple(chance.choice((0, 1, -1, 5, 1 << 31)) for _ in range(chance.randrange(70)))
        return chance.choice((value * 3, value[:-1], drawn, ()))
    return chance.choice(SCALARS)


def changed_plan(chance: random.Random, plan: ExecutionPlan) -> ExecutionPlan:
    """A method that says something else; the same one where the reader would not have let the other through."""
    values, instructions = list(plan.values), list(plan.instructions)
    for _ in range(chance.choice(FEW)):
        if chance.random() < 0.5:
            place = chance.randrange(len(values))
            values[place] = _changed_outer(chance, values[place])
            continue
        place = chance.randrange(len(instructions))
        instructions[place] = _changed_instruction(chance, instructions[place], len(values), len(instructions))
    made = replace(plan, values=tuple(values), instructions=tuple(instructions))
    return made if _is_proven(made) else plan


def _changed_outer(chance: random.Random, value: Any) -> Any:
    kind = chance.random()
    if isinstance(value, TensorSpec) and kind < 0.6:
        shape = changed_shape(chance, value.shape)
        order = list(range(len(shape)))
        if chance.random() < 0.4:
            chance.shuffle(order)
        # Data that is there fits what the reader saw; of another shape it is somebody else's.
        return replace(value, shape=shape, dim_order=tuple(order), data_index=0, external=False)
    if isinstance(value, TensorSpec) and kind < 0.8:
        return replace(value, dtype=chance.choice(OUTER_DTYPES), data_index=0, external=False)
    if isinstance(value, (IntListRef, TensorListRef, OptionalTensorListRef)) and kind < 0.7:
        return value
    return chance.choice(SCALARS)


def _changed_instruction(chance: random.Random, call: Any, values: int, instructions: int) -> Any:
    if isinstance(call, KernelCall) and chance.random() < 0.5:
        name = chance.choice(OUTER)
        args = called(chance, call.args, OPS[name].arity, values)
        return replace(call, op=name, args=(*args, args[-1]))
    if isinstance(call, (KernelCall, DelegateCall)):
        return replace(call, args=other_argument(chance, call.args, values))
    if isinstance(call, JumpFalseCall):
        return replace(call, condition=chance.randrange(values), target=chance.randrange(instructions + 1))
    if isinstance(call, MoveCall):
        return replace(call, source=chance.randrange(values), target=chance.randrange(values))
    return call


def _is_proven(plan: ExecutionPlan) -> bool:
    """Whether lists hold what the reader promises of them."""
    kinds: dict[type, tuple[type, ...]] = {
        TensorListRef: (TensorSpec,),
        IntListRef: (int,),
        OptionalTensorListRef: (TensorSpec, type(None)),
    }
    return all(
        index == -1 or type(plan.values[index]) in kinds[type(value)]
        for value in plan.values
        if isinstance(value, tuple(kinds))
        for index in value.ids
    )
