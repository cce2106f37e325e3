"""Sharing memory is never seen: random programs leave the same contents with aliasing and shared blocks as without.

Two interpreters run each program on tokens instead of numbers. The first gives every tensor memory of its own; the
second has only the blocks of the plan. They must agree on everything a node reads and on every result. No GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape.graph import Graph, Node, Tensor
from liveshape.graph.elements import padded, storage_bytes, stored_alike
from liveshape.plan.memory import MemoryPlan, Roots, Storage, alias_views, plan_memory, share_constants
from tests.support.chains import Chain

SIZES = (1, 4, 5, 16, 64)
KINDS = ("float32", "float32", "float32", "int32", "bool", "uint8")
Token = Any


@dataclass
class Program:
    """A graph under construction: nodes in order, and how often each jump back is taken."""

    nodes: list[Node] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    state: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    iterations: dict[int, int] = field(default_factory=dict)
    scratch: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def tensor(self, kind: str, size: int, data: memoryview | None = None) -> Tensor:
        made = Tensor(f"t{len(self.tensors)}", kind, (size,), constant=data)
        self.tensors.append(made)
        return made

    def kept(self, kind: str, size: int) -> Tensor:
        """A state: it has contents from load on, and keeps them between calls."""
        self.state.append(self.tensor(kind, size, memoryview(bytes(4 * size))))
        return self.state[-1]

    def node(self, name: str, args: tuple[Any, ...], **flags: Any) -> Node:
        index = len(self.nodes)
        made = Node(index, f"{name} {index}", name, lambda *_: None, args, **flags)
        self.nodes.append(made)
        return made

    def jump_to(self, jump: Node, target: int) -> None:
        """Where a jump goes, once that is known."""
        self.nodes[jump.index] = replace(jump, args=(jump.args[0], target, None))

    def graph(self) -> Graph:
        return Graph("random", tuple(self.nodes), tuple(self.tensors), tuple(self.inputs), tuple(self.outputs))

    def scratches(self) -> list[tuple[Tensor, ...]]:
        return [self.scratch.get(node.index, ()) for node in self.nodes]

    def roots(self, aliasing: bool = True) -> Roots:
        graph = self.graph()
        constants = share_constants(graph)
        return alias_views(graph, constants, True) if aliasing else constants

    def memory(self, aliasing: bool = True) -> MemoryPlan:
        return plan_memory(self.graph(), self.roots(aliasing), self.scratches(), True)


class Writer:
    """Draws the nodes of a program; `known` are the tensors that surely hold something at this point."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.program = Program()

    def write(self) -> Program:
        program, draw = self.program, self.draw
        known: list[Tensor] = []
        for _ in range(draw(st.integers(1, 3))):
            program.inputs.append(self.fresh())
        for _ in range(draw(st.integers(0, 2))):
            program.kept(draw(st.sampled_from(KINDS)), draw(st.sampled_from(SIZES)))
        known += program.inputs + program.state
        self.block(known, depth=0)
        count = draw(st.integers(1, min(4, len(known))))
        program.outputs = draw(st.lists(st.sampled_from(known), min_size=count, max_size=count))
        return program

    def fresh(self) -> Tensor:
        return self.program.tensor(self.draw(st.sampled_from(KINDS)), self.draw(st.sampled_from(SIZES)))

    def some(self, known: list[Tensor], most: int = 3) -> tuple[Tensor, ...]:
        return tuple(self.draw(st.lists(st.sampled_from(known), min_size=1, max_size=most)))

    def block(self, known: list[Tensor], depth: int) -> None:
        kinds = ["view", "view", "compute", "compute", "outputs", "rewrite", "move", "mutate", "update"]
        for _ in range(self.draw(st.integers(0 if depth else 1, 5 if depth else 9))):
            kind = self.draw(st.sampled_from([*kinds, *(["branch", "loop"] if depth < 2 else [])]))
            getattr(self, kind)(known, depth)

    def view(self, known: list[Tensor], depth: int) -> None:
        source = self.draw(st.sampled_from(known))
        kind = source.dtype if self.draw(st.integers(0, 3)) else self.draw(st.sampled_from(KINDS))
        target = self.program.tensor(kind, source.max_shape[0])
        self.program.node("view", (source, target), alias=True)
        known.append(target)

    def compute(self, known: list[Tensor], depth: int) -> None:
        node = self.program.node("compute", (*self.some(known), self.fresh()))
        sizes = self.draw(st.lists(st.sampled_from(SIZES), max_size=2))
        self.program.scratch[node.index] = tuple(Tensor("scratch", "float32", (size,)) for size in sizes)
        known.append(node.args[-1])

    def outputs(self, known: list[Tensor], depth: int) -> None:
        made = tuple(self.fresh() for _ in range(self.draw(st.integers(2, 3))))
        self.program.node("split", (*self.some(known), made))
        known.extend(made[: self.draw(st.integers(1, len(made)))])

    def rewrite(self, known: list[Tensor], depth: int) -> None:
        target = self.draw(st.sampled_from(known))
        sources = tuple(tensor for tensor in self.some(known) if tensor is not target)
        self.program.node("rewrite", (*sources, target))

    def move(self, known: list[Tensor], depth: int) -> None:
        source, target = self.draw(st.sampled_from(known)), self.draw(st.sampled_from(known))
        if source is not target:
            self.program.node("move", (source, target), alias=True)

    def mutate(self, known: list[Tensor], depth: int) -> None:
        """As copy_ and index_put_ do: the result is the first argument."""
        target = self.draw(st.sampled_from(known))
        sources = tuple(tensor for tensor in self.some(known) if tensor is not target)
        self.program.node("mutate", (target, *sources, target), mutates=(0,))

    def update(self, known: list[Tensor], depth: int) -> None:
        """As attention with a cache does: it writes the cache and something else."""
        target = self.draw(st.sampled_from(known))
        sources = tuple(tensor for tensor in self.some(known) if tensor is not target)
        node = self.program.node("update", (target, *sources, self.fresh()), mutates=(0,))
        known.append(node.args[-1])

    def branch(self, known: list[Tensor], depth: int) -> None:
        """What a side of a branch makes stays in it; both sides may write what was there before."""
        leave = self.program.node("jump", (None, 0, None), control=True)
        self.block(list(known), depth + 1)
        skip = self.program.node("jump", ("never", 0, None), control=True)
        self.program.jump_to(leave, len(self.program.nodes))
        self.block(list(known), depth + 1)
        self.program.jump_to(skip, len(self.program.nodes))

    def loop(self, known: list[Tensor], depth: int) -> None:
        start = len(self.program.nodes)
        self.block(known, depth + 1)
        again = self.program.node("jump", ("count", start, None), control=True)
        self.program.iterations[again.index] = self.draw(st.integers(0, 2))


@st.composite
def programs(draw: Callable[[Any], Any]) -> Program:
    return Writer(draw).write()


class Plain:
    """Every tensor has memory of its own, and a view copies."""

    def __init__(self, program: Program) -> None:
        self.memory: dict[Tensor, Token] = {tensor: ("state", tensor.name) for tensor in program.state}

    def begin(self, program: Program, call: int) -> None:
        for tensor in program.inputs:
            self.memory[tensor] = ("input", tensor.name, call)

    def read(self, tensor: Tensor) -> Token:
        return self.memory[tensor]

    def write(self, tensor: Tensor, token: Token) -> None:
        self.memory[tensor] = token

    def scratch(self, node: Node) -> None:
        pass

    def copy(self, source: Tensor, target: Tensor) -> None:
        self.memory[target] = self.memory[source]


class Blocks(Plain):
    """The memory of the plan: what is not persistent is lost between calls."""

    def __init__(self, program: Program, memory: MemoryPlan) -> None:
        self.program, self.storages = program, memory.storages
        used = [tensor for tensor in program.state if tensor in self.storages]
        self.blocks: dict[int, Token] = {self.storages[tensor].block: ("state", tensor.name) for tensor in used}
        self.kept = {*self.blocks}

    def begin(self, program: Program, call: int) -> None:
        self.blocks = {block: token for block, token in self.blocks.items() if block in self.kept}
        for tensor in program.inputs:
            if tensor in self.storages:
                self.blocks[self.storages[tensor].block] = ("input", tensor.name, call)

    def read(self, tensor: Tensor) -> Token:
        return self.blocks.get(self.storages[tensor].block, "nothing")

    def write(self, tensor: Tensor, token: Token) -> None:
        self.blocks[self.storages[tensor].block] = token

    def scratch(self, node: Node) -> None:
        for tensor in self.program.scratch.get(node.index, ()):
            self.blocks[self.storages[tensor].block] = ("scratch", node.index)

    def copy(self, source: Tensor, target: Tensor) -> None:
        if self.storages[target] != self.storages[source]:
            self.blocks[self.storages[target].block] = self.read(source)


def run(program: Program, memory: Plain, choices: list[bool], call: int) -> list[Any]:
    """One call: everything that nodes read and that the caller gets, in order."""
    memory.begin(program, call)
    seen: list[Any] = []
    decisions = iter(choices * 50)
    iterations = dict(program.iterations)
    at = 0
    while at < len(program.nodes):
        node = program.nodes[at]
        at += 1
        if node.control:
            condition, target, _ = node.args
            if condition == "count":
                if iterations[node.index] > 0:
                    iterations[node.index] -= 1
                    at = target
                else:
                    iterations[node.index] = program.iterations[node.index]
            elif condition == "never" or not next(decisions):
                at = target
            continue
        reads = tuple(memory.read(tensor) for tensor in node.inputs)
        seen.append((node.label, reads))
        memory.scratch(node)
        if node.alias:
            memory.copy(node.args[0], node.args[-1])
        else:
            for position, tensor in enumerate(dict.fromkeys(node.written)):
                memory.write(tensor, (node.index, position, hash(reads)))
    return [*seen, *(memory.read(tensor) for tensor in program.outputs)]


def check_no_overlap(program: Program, memory: MemoryPlan) -> None:
    """A dispatch may not bind one buffer twice if it writes it, so a node's memory must not overlap within the node."""
    storages = memory.storages
    for node in program.nodes:
        if node.control or (node.alias and storages[node.args[0]] == storages[node.args[-1]]):
            continue
        touched: set[Storage] = {storages[each] for each in (*node.written, *program.scratch.get(node.index, ()))}
        written = {storage.block for storage in touched}
        assert len(written) == len(touched), f"{node.label} writes a block twice"
        for tensor in node.inputs:
            if tensor not in node.written:
                assert storages[tensor].block not in written, f"{node.label} reads what it writes"


def naive_bytes(program: Program) -> int:
    """A plan as files have it: no views, a tensor goes into the first block that is free for its whole life."""
    spans: dict[Tensor, list[int]] = {}
    for tensor in program.inputs:
        spans.setdefault(tensor, []).append(-1)
    for node in program.nodes:
        for tensor in (*node.inputs, *node.written, *program.scratch.get(node.index, ())):
            spans.setdefault(tensor, []).append(node.index)
    for tensor in program.outputs:
        spans.setdefault(tensor, []).append(len(program.nodes))
    for node in program.nodes:
        if node.control and node.args[1] <= node.index:
            for places in spans.values():
                if min(places) <= node.index and max(places) >= node.args[1]:
                    places += [node.args[1], node.index]
    blocks: list[tuple[int, list[tuple[int, int]]]] = []
    for tensor, places in sorted(spans.items(), key=lambda item: min(item[1])):
        if tensor in program.state:
            continue
        low, high = min(places), max(places)
        for position, (size, tenants) in enumerate(blocks):
            if all(high < start or low > stop for start, stop in tenants):
                blocks[position] = max(size, nbytes(tensor)), [*tenants, (low, high)]
                break
        else:
            blocks.append((nbytes(tensor), [(low, high)]))
    return sum(size for size, _ in blocks)


def nbytes(tensor: Tensor) -> int:
    return padded(storage_bytes(tensor.dtype, tensor.max_shape[0]))


CASES = programs(), st.lists(st.booleans(), min_size=1, max_size=8), st.booleans()


def memory_reuse_is_never_observable(program: Program, choices: list[bool], aliasing: bool) -> None:
    memory = program.memory(aliasing)
    check_no_overlap(program, memory)
    plain, shared = Plain(program), Blocks(program, memory)
    for call in range(3):
        taken = choices[call:] + choices[:call]
        assert run(program, shared, taken, call) == run(program, plain, taken, call)
    # Views that share live longer; a plan gives sharing up where that exceeds the plan of the file.
    assert aliasing or memory.activation_bytes <= naive_bytes(program)
    assert memory.activation_bytes <= memory.unshared_bytes


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_memory_reuse_is_never_observable(count: int) -> None:
    settings(max_examples=count, deadline=None)(given(*CASES)(memory_reuse_is_never_observable))()


@settings(max_examples=100, deadline=None)
@given(programs())
def test_blocks_hold_their_tensors(program: Program) -> None:
    memory = program.memory()
    for tensor, storage in memory.storages.items():
        assert memory.blocks[storage.block] >= storage.nbytes >= nbytes(tensor)
    assert sum(memory.blocks) == memory.activation_bytes + memory.persistent_bytes


@settings(max_examples=100, deadline=None)
@given(programs())
def test_aliases_are_stored_alike(program: Program) -> None:
    roots = program.roots()
    shared = {tensor: root for tensor, root in roots.items() if tensor is not root}
    assert all(stored_alike(tensor.dtype, root.dtype) for tensor, root in shared.items())
    memory = program.memory()
    assert memory.aliased == sum(1 for tensor in shared if tensor in memory.storages)
    assert all(memory.storages[tensor] == memory.storages[root] for tensor, root in shared.items())


def test_a_chain_of_views_is_aliased() -> None:
    program = Program()
    first = program.tensor("float32", 64)
    program.inputs.append(first)
    for _ in range(5):
        program.node("view", (program.tensors[-1], program.tensor("float32", 64)), alias=True)
    program.outputs.append(program.tensors[-1])
    memory = program.memory()
    assert memory.aliased == 5
    assert memory.activation_bytes == memory.storages[first].nbytes == 256


def test_a_view_of_a_state_that_changes_later_is_a_snapshot() -> None:
    program = Program()
    state, given_now = program.kept("float32", 4), program.tensor("float32", 4)
    program.inputs.append(given_now)
    before, after = program.tensor("float32", 4), program.tensor("float32", 4)
    program.node("view", (state, before), alias=True)
    program.node("copy_", (state, given_now, state), mutates=(0,))
    program.node("view", (state, after), alias=True)
    program.outputs += [before, after]
    storages = program.memory().storages
    assert storages[before] != storages[state]
    assert storages[after] == storages[state]


def test_an_input_that_is_overwritten_keeps_its_own_memory() -> None:
    program = Program()
    first, second = program.tensor("float32", 4), program.tensor("float32", 4)
    program.inputs += [first, second]
    program.node("move", (second, first), alias=True)
    program.outputs += [first, second]
    assert program.memory().aliased == 0


def test_a_view_that_the_next_turn_of_a_loop_reads_is_a_copy() -> None:
    program = Program()
    source, kept, seen = (program.tensor("float32", 4) for _ in range(3))
    program.inputs.append(source)
    program.node("compute", (kept, seen))
    program.node("view", (source, kept), alias=True)
    program.node("compute", (seen, source))
    program.node("jump", ("count", 0, None), control=True)
    program.outputs.append(seen)
    assert program.memory().aliased == 0


def test_equal_bytes_of_the_file_share_memory() -> None:
    """A table that an embedding and a head tie is there once; what is written in place is not shared."""
    chain = Chain()
    data = np.arange(32, dtype=np.float32)
    tied, again, state, again_as_bits = (chain.constant(each) for each in (data, data, data, data.view(np.int32)))
    tail = chain.constant(data[16:])
    x = chain.input((32,))
    chain.node("liveshape.move", x, state)
    roots = share_constants(chain.graph(state))
    assert roots[tied] is roots[again]
    assert len({roots.get(tensor, tensor) for tensor in (tied, tail, state, again_as_bits)}) == 4
