"""Makes the sweeps that travel with the package, from the operator cases of the tests and torch's answers.

    python -m tests.check.goldens --write liveshape/check/sweeps.npz [--same]

Not all cases fit in a wheel. Of each, at a few small bounds and at its own, the kernels are known by planning it for
several kinds of devices; a greedy cover then takes the smallest ones until every operator has run, and every kernel in
every variant that a few kilobytes can reach. With `--same` the file keeps the sweeps that it has, and torch computes
them anew.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track

from liveshape.check.differences import FACTORS, TOLERANCE
from liveshape.check.references import kept
from liveshape.check.sweeps import LiveCall, Sweep, load_sweeps, save_sweeps
from liveshape.errors import LiveshapeError
from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.kernels import Variant
from liveshape.lower.pattern_operators import COMPOSED, LOADED, POINTWISE, POINTWISE_RESULTS
from liveshape.ops import OPS
from liveshape.ops.registry import defined_by
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from liveshape.tools.commands.ops import described
from tests.ops.cases import CASES
from tests.support.graphs import Const, In, OpCase, Out, build, flat_specs

# Whose kernels are covered: a GPU, a software adapter, and the least that WebGPU has.
DEVICES = {
    "gpu": Limits(max_invocations=1024, max_bindings=16, max_workgroup_bytes=32768, subgroup=32),
    "software": Limits(max_invocations=32, max_cooperating_threads=4, lanes=8),
    "least": Limits(half=False),
}
BOUNDS = (7, 17)  # beside that of a case
MAX_BYTES = 8 << 10  # of a sweep, for one more variant
MAX_KERNEL_BYTES = 300 << 10  # of a sweep, for a kernel or an operator that no smaller one reaches
HEADER = 400  # bytes that a sweep takes beside its arrays
# Operators of which every expression makes kernels of its own: a sweep of each kernel that has one is enough.
OF_EXPRESSIONS = frozenset({COMPOSED, LOADED, POINTWISE, POINTWISE_RESULTS})
STEP = 1 / 2048  # of random inputs: twelve bits show a device that rounds to fewer, and pack well
BFLOAT16 = " in bfloat16"

# Operators with a kernel that no sweep has, and why: by the first name of each.
NO_SWEEP = {
    "aten.copy_.default": "in place: its output is its input, which a node alone cannot say; aten.copy has its kernels",
    "aten.index_put_.default": "in place, as aten.copy_ is; aten.index_put has its kernels",
    "executorch_prim::et_copy_index.tensor": "grows its input from call to call, in a loop",
    "aten::empty.out": "what it holds is left open",
    **dict.fromkeys(
        (
            "aten.rand.default",
            "aten::rand.out",
            "aten.rand_like.default",
            "aten::rand_like.out",
            "aten.randn.default",
            "aten::randn.out",
            "aten.randn_like.default",
            "aten::randn_like.out",
            "aten::randint.low_out",
            "aten::randint.out",
            "aten::randperm.out",
        ),
        "random: nobody can foresee its results",
    ),
    "liveshape.channels_last_convolution": "takes matrix units; tests/matrices has it",
    "liveshape.unpack_tables": "cuts an array of the batch engine by five live sizes; no arithmetic",
    "liveshape.quantize_rows": "its bytes are in an order of their own, seen in the layers that read them",
    "liveshape.residual_quantized_linear_q4gsw": "gives such bytes; liveshape.residual_linear_q4gsw has its products",
    "liveshape.rotary_linear_q4gsw": "qkv_linear_q4gsw and rotary_to_cache in one; each has sweeps",
    "liveshape.rms_norm_rotary_linear_q4gsw": "rms_norm_qkv_linear_q4gsw and rotary_to_cache in one; each has sweeps",
    "liveshape.paged_attention": "its tables depend on the device; sdpa_with_kv_cache has sweeps of its arithmetic",
    "quantized_decomposed::embedding_4bit.out": "the kernel of et_vk.embedding_q4gsw, with another output",
    "quantized_decomposed::embedding_2bit.out": "the kernel of et_vk.embedding_q4gsw, of two bits",
    "quantized_decomposed::embedding_byte.out": "the kernel of et_vk.embedding_q4gsw, of eight bits",
}


@dataclass(frozen=True)
class Candidate:
    """A case at some of its sizes, with its bytes and the kernels that it reaches."""

    case: OpCase
    sizes: tuple[int, ...]
    nbytes: int
    reached: frozenset[tuple[str, ...]]  # (operator, kind of device, variant), and (operator,)


def in_bfloat16(case: OpCase) -> OpCase:
    """A case whose float32 tensors are bfloat16."""

    def changed(spec: Any) -> Any:
        if isinstance(spec, (list, tuple)):
            return tuple(changed(item) for item in spec)
        is_float = isinstance(spec, (In, Out)) and spec.dtype == "float32"
        return replace(spec, dtype="bfloat16") if is_float else spec

    return replace(case, name=case.name + BFLOAT16, args_at=lambda size: list(changed(case.args_at(size))))


def sources() -> list[OpCase]:
    """All cases, and the first of each operator that has floats in bfloat16."""
    cases = list({case.name: case for case in CASES}.values())
    first = {
        case.op: case
        for case in reversed(cases)
        if {spec.dtype for spec in all_specs(case.args_at(max(case.sizes))) if isinstance(spec, (In, Out))}
        == {"float32"}
    }
    return [*cases, *(in_bfloat16(first[op]) for op in sorted(first))]


@functools.cache
def by_name() -> dict[str, OpCase]:
    return {case.name: case for case in sources()}


def sizes_of(sweep: Sweep) -> tuple[int, ...]:
    return tuple(call.size for call in sweep.calls)


def all_specs(specs: Sequence[Any]) -> Iterator[Any]:
    for spec in specs:
        if isinstance(spec, (list, tuple)):
            yield from all_specs(spec)
        else:
            yield spec


def size_lists(case: OpCase) -> list[tuple[int, ...]]:
    """Live sizes, from the bound down: it, one between, the least, and nothing at all where a case has that."""
    sizes = sorted(set(case.sizes))
    found = []
    for bound in (*BOUNDS, sizes[-1]):
        low = [size for size in sizes if size <= bound]
        some = [size for size in low if size]
        if some and (len(some) > 1 or len(sizes) == len(low)):
            found.append(tuple(dict.fromkeys([some[-1], some[len(some) // 2], some[0], *low[: len(low) - len(some)]])))
    return list(dict.fromkeys(found))


def bytes_of(case: OpCase, sizes: Sequence[int]) -> int:
    def nbytes(spec: Any) -> int:
        kind = "float32" if spec.dtype == "bfloat16" else spec.dtype
        return int(np.prod(spec.shape)) * np.dtype(kind).itemsize

    arrays = [spec for size in sizes for spec in all_specs(case.args_at(size)) if isinstance(spec, (In, Out))]
    constants = [spec.array for spec in all_specs(case.args_at(sizes[0])) if isinstance(spec, Const)]
    return sum(map(nbytes, arrays)) + sum(array.nbytes for array in constants) + HEADER


def reached_by(case: OpCase, sizes: Sequence[int]) -> frozenset[tuple[str, ...]]:
    """Operator, kind of device and variant of every kernel that these live sizes take; nothing where no device of the
    list takes them."""
    found: set[tuple[str, ...]] = set()
    operator = defined_by(OPS[case.op].run).name
    for kind, limits in DEVICES.items():
        try:
            labels = {each.label for each in _dispatched(case, sizes, limits)}
        except LiveshapeError:
            continue  # such as halves where a device has none
        found |= {(operator, kind, without_expression(each) if case.op in OF_EXPRESSIONS else each) for each in labels}
        found.add((operator,))
    return frozenset(found)


def _dispatched(case: OpCase, sizes: Sequence[int], limits: Limits) -> Iterator[Variant]:
    graph = build(replace(case, sizes=tuple(sizes)), max(sizes))
    live = PlanState(compile(graph, limits, Choices(warm=False)))
    for size in sizes:
        for value, spec in zip(graph.inputs, flat_specs(case.args_at(size)), strict=True):
            live.set(value, tuple(spec.shape) if isinstance(value, Tensor) else spec.value)
        live.begin()
        live.walk(0, 1, lambda _, request: 0)
        for node in live.nodes:
            yield from (variant for variant, _ in node.group.route.dispatched)


def without_expression(label: str) -> str:
    """The kernel in which an expression is, whatever it is.

    >>> [without_expression(f"{kernel}<f32>") for kernel in ("matmul/gemv + add+neg", "reduction/softmax+one of neg")]
    ['matmul/gemv +', 'reduction/softmax+one of']
    >>> [without_expression(f"{kernel}<f32, WG=64u>") for kernel in ("pointwise/add+neg", "movement/strided_copy")]
    ['pointwise', 'movement/strided_copy']
    """
    kernel = label.partition("<")[0]
    if kernel.startswith("pointwise/"):
        return "pointwise"
    return re.sub(r"( \+| of) .*", r"\1", kernel)


def candidates() -> Iterator[Candidate]:
    for case in track(sources(), "Planning"):
        for sizes in size_lists(case):
            if reached := reached_by(case, sizes):
                yield Candidate(case, sizes, bytes_of(case, sizes), reached)


def covered(found: Sequence[Candidate]) -> list[Candidate]:
    """The smallest candidates that reach all variants that small ones reach, and every kernel and operator."""
    small = _cover([each for each in found if each.nbytes <= MAX_BYTES], lambda each: each.reached)

    def needed(each: Candidate) -> set[tuple[str, ...]]:
        return {row[:1] if row[:1] == row else (row[1], row[2].partition("<")[0]) for row in each.reached}

    done = set().union(*map(needed, small))
    large = [each for each in found if each.nbytes <= MAX_KERNEL_BYTES]
    chosen = [*small, *_cover(large, lambda each: needed(each) - done)]
    return sorted(chosen, key=lambda each: (each.case.name, each.sizes))


def _cover(found: Sequence[Candidate], reached: Any) -> list[Candidate]:
    """A greedy cover: most that is new for a byte comes first. What is new shrinks, so old counts are upper bounds."""
    left = set().union(*map(reached, found))
    ordered = sorted(found, key=lambda each: (each.nbytes, each.case.name, each.sizes))
    waiting = [(-len(reached(each)) / each.nbytes, place) for place, each in enumerate(ordered)]
    heapq.heapify(waiting)
    chosen: list[Candidate] = []
    while left:
        _, place = heapq.heappop(waiting)
        each = ordered[place]
        worth = -len(reached(each) & left) / each.nbytes
        if worth and (not waiting or (worth, place) <= waiting[0]):
            chosen.append(each)
            left -= reached(each)
        elif worth:
            heapq.heappush(waiting, (worth, place))
    return chosen


def sweep_of(case: OpCase, sizes: Sequence[int]) -> Sweep:
    """A case at these sizes, of which the first is the bound, with torch's answers."""
    graph = build(replace(case, sizes=tuple(sizes)), sizes[0])
    calls = [_call(case, graph, size) for size in sizes]
    factors = [FACTORS.get(value.dtype, 1.0) for value in graph.outputs if isinstance(value, Tensor)]
    tolerance = max(TOLERANCE, case.rtol / min(factors, default=1.0))
    return Sweep(case.name, graph.nodes[0], tuple(calls), tolerance)


def _call(case: OpCase, graph: Graph, size: int) -> LiveCall:
    generator = np.random.default_rng((zlib.crc32(case.name.encode()), size))
    drawn = [_drawn(spec, generator) for spec in flat_specs(case.args_at(size))]
    golden = case.golden(*(torch.from_numpy(each.copy()) for each in drawn if isinstance(each, np.ndarray)), size)
    results = golden if isinstance(golden, (tuple, list)) else (golden,)
    want = {
        value: result.item()
        if isinstance(value, SymInt)
        else kept(torch.as_tensor(result).detach().numpy(), value.dtype)
        for value, result in zip(graph.outputs, results, strict=True)
    }
    return LiveCall(size, dict(zip(graph.inputs, drawn, strict=True)), want)


def _drawn(spec: Any, generator: np.random.Generator) -> Any:
    if not isinstance(spec, In):
        return spec.value
    drawn = spec.draw(generator)
    plain = spec.make is None and drawn.dtype.kind == "f" and spec.dtype != "bfloat16"
    return np.asarray(np.round(drawn.astype(np.float64) / STEP) * STEP, drawn.dtype) if plain else np.asarray(drawn)


def without_sweep(sweeps: Sequence[Sweep]) -> set[str]:
    """The first name of every operator that has a kernel and no sweep."""
    done = {sweep.node.run for sweep in sweeps}
    names = {entry.run: name for name, entry in reversed(OPS.items()) if described(entry).kernels}
    return {name for run, name in names.items() if run not in done}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    parser.add_argument("--same", action="store_true", help="the sweeps that the file has, computed anew")
    options = parser.parse_args(arguments)
    if options.same:
        chosen = [(by_name()[sweep.name], sizes_of(sweep)) for sweep in load_sweeps(options.write)]
    else:
        chosen = [(each.case, each.sizes) for each in covered(list(candidates()))]
    sweeps = [sweep_of(case, sizes) for case, sizes in track(chosen, "Computing")]
    save_sweeps(options.write, sweeps)
    print(f"{len(sweeps)} sweeps of {len({sweep.node.run for sweep in sweeps})} operators, ", end="")
    print(f"{options.write.stat().st_size:,} bytes; without one: {', '.join(sorted(without_sweep(sweeps)))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
