"""Random expressions of tensors that broadcast, and the same as epilogues of every operator that takes one.

Each is the case of another operator with an expression behind it, or an expression alone. What an expression means
comes from kernels/pointwise_table.py in float64, rounded where the file has a smaller dtype.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from liveshape.check.meanings.pointwise_meanings import evaluated
from liveshape.graph.elements import by_itself
from liveshape.graph.expression import Applied, Expression, is_whole
from liveshape.lower.pattern_operators import COMPOSED, LOADED, POINTWISE, POINTWISE_RESULTS
from liveshape.ops import OPS
from liveshape.ops.composed import Anchor, Composition, Loading, Place, with_places
from tests.support.graphs import Const, In, OpCase, Out, Sym, build, flat_specs
from tests.support.torch_functions import TorchFunctions

Shape = tuple[int, ...]
# None of them makes a small difference large, whatever the arguments are.
FLOAT_OF_ONE = ("neg", "abs", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "erf", "sin", "cos", "atan", "copy")
FLOAT_OF_TWO = ("add", "sub", "maximum", "minimum", "hypot")
WHOLE_OF_ONE = ("neg", "abs", "copy", "bitwise_not", "sign")
WHOLE_OF_TWO = ("add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_xor")
KINDS = ("float32", "float32", "float16", "bfloat16", "int32", "bool", "uint8")
HALVES = ("float16", "bfloat16")
ROUNDS = {"float16": (4e-3, 4e-3), "bfloat16": (3.2e-2, 3.2e-2)}


class Rounding(TorchFunctions):
    """torch in float64, where every call is rounded to the dtype that the file has for it."""

    def kept(self, x: torch.Tensor, dtype: str) -> torch.Tensor:
        if dtype == "bool":
            return x != 0
        if is_whole(dtype):  # they wrap, those of int64 as whole numbers of 32 bits do
            return x.long().to({"uint8": torch.uint8, "int8": torch.int8}.get(dtype, torch.int32)).long()
        return x.double().to(getattr(torch, dtype)).double() if dtype in HALVES else x.double()


class Made(NamedTuple):
    """An expression whose first operand may be given, the dtypes of the others, and its numbers."""

    expression: Expression
    numbers: tuple[float, ...]


def drawn(
    chance: random.Random, operands: Sequence[str], count: int, *, stored: bool = False, beside: bool = False
) -> Made:
    """An expression of so many calls or a few more, which reads every operand; some of its values are `stored` with the
    result, perhaps the first operand `beside` them."""
    numbers = (0.5, 1.25, -0.75)
    kinds = ("float32",) * len(numbers)
    dtypes = [*operands, *kinds]
    first = len(operands)
    calls: list[Applied] = []
    undecided: set[int] = set()  # comparisons that choose between what they compare, and nothing else

    def call(function: str, dtype: str, *places: int) -> int:
        calls.append(Applied(function, places, dtype))
        dtypes.append(dtype)
        return len(dtypes) - 1

    def of_one(place: int) -> int:
        dtype = dtypes[place]
        if dtype in ("bool", "uint8"):
            return call("copy", chance.choice(("float32", "int32")), place)
        if is_whole(dtype):
            return call(chance.choice(WHOLE_OF_ONE), dtype, place)
        if chance.random() < 0.25:
            return call("copy", chance.choice(("float32", *HALVES)), place)
        if chance.random() < 0.3:
            return call("mul", dtype, place, first + chance.randrange(len(numbers)))
        return call(chance.choice(FLOAT_OF_ONE), dtype, place)

    def of_two(one: int, other: int) -> int:
        both = {dtypes[one], dtypes[other]}
        if both == {"bool"}:
            return call(chance.choice(("logical_and", "logical_or", "logical_xor")), "bool", one, other)
        if "bool" in both and dtypes[one] != "bool":
            one, other = other, one
        if dtypes[one] == "bool":
            return call("where", dtypes[other], one, other, call("neg", dtypes[other], other))
        if all(map(is_whole, both)):
            return call(chance.choice(WHOLE_OF_TWO), "int32", one, other)
        wide = both.pop() if len(both) == 1 else "float32"
        if chance.random() < 0.15:
            compared = call(chance.choice(("lt", "ge")), "bool", one, other)
            # A number and its own half are the same where a device has no halves.
            if any(each.dtype in HALVES for each in calls):
                undecided.add(compared)
            return call("where", wide, compared, one, other)
        return call(chance.choice(FLOAT_OF_TWO), wide, one, other)

    last = 0
    for operand in range(1, len(operands)):
        last = of_two(last, operand) if chance.random() < 0.5 else of_two(operand, last)
        if chance.random() < 0.4:
            last = of_one(last)
    while len(calls) < count:
        # Compilers take x - x for zero, whatever x is.
        other = chance.randrange(len(operands), len(dtypes))
        alone = other == last or other in undecided or chance.random() < 0.7
        last = of_one(last) if alone else of_two(last, other)
    inner = range(first + len(kinds), len(dtypes) - 1)
    kept = chance.sample([0, *inner] if beside else inner, chance.randint(0, min(2, len(inner)))) if stored else ()
    return Made(Expression(tuple(operands), kinds, tuple(calls), tuple(kept)), numbers)


def meant(made: Made, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What an expression gives of torch's tensors."""
    return evaluated(Rounding(), made.expression, operands, made.numbers)


def stored_by(made: Made, shape: Shape) -> tuple[Out, ...]:
    """The results of an expression."""
    return tuple(Out(made.expression.dtype_of(place), shape) for place in made.expression.results)


def tolerance(expression: Expression) -> dict[str, float]:
    """Of a result whose roundings may fall either way."""
    rough = [ROUNDS[call.dtype] for call in expression.calls if call.dtype in ROUNDS]
    atol, rtol = max(rough, default=(4e-5, 4e-5))
    return {"atol": atol * (1 + len(rough)), "rtol": rtol * (1 + len(rough))}


# Shapes of operands that broadcast to (s, 3, width).
BROADCAST: tuple[Callable[[int, int], Shape], ...] = (
    lambda s, w: (s, 3, w),
    lambda s, w: (w,),
    lambda s, w: (3, 1),
    lambda s, w: (s, 1, 1),
    lambda s, w: (s, 1, w),
    lambda s, w: (1, 3, w),
    lambda s, w: (),
    lambda s, w: (1, 1),
)


def alone(seed: int) -> OpCase:
    """An expression of one to five tensors, of which the first has the shape of the result."""
    chance = random.Random(seed)
    width = chance.choice((8, 12, 7, 5))
    count = chance.randint(1, 5)
    kinds = [
        chance.choice(("float32", "float32", "float16", "bfloat16", "int32", "bool", "uint8")) for _ in range(count)
    ]
    shapes = [BROADCAST[0], *(chance.choice(BROADCAST) for _ in range(count - 1))]
    several = chance.random() < 0.5
    made = drawn(chance, kinds, chance.randint(3 if several else 2, 9), stored=several)
    results = stored_by(made, (1,))

    def outs(s: int) -> Any:
        whole = tuple(replace(each, shape=(s, 3, width)) for each in results)
        return whole if made.expression.kept else whole[0]

    return OpCase(
        f"expression {seed}: {made.expression}",
        POINTWISE_RESULTS if made.expression.kept else POINTWISE,
        lambda s: [
            made.expression,
            tuple(In(kind, shape(s, width)) for kind, shape in zip(kinds, shapes, strict=True)),
            made.numbers,
            outs(s),
        ],
        lambda *given: tuple(each.expand(given[-1], 3, width) for each in meant(made, given[:-1])),
        sizes=(1, 2, 3, 7, 17, 29),
        **tolerance(made.expression),
    )


def broadcast_to(chance: random.Random, shape: Callable[[int], Shape]) -> Callable[[int], Shape]:
    """A shape that broadcasts to another one at every size."""
    form = chance.choice(("same", "row", "column", "one"))
    if form == "row":
        return lambda s: shape(s)[-1:]
    if form == "column":
        return lambda s: (*shape(s)[:-1], 1)[-max(1, len(shape(s))) :] if shape(s) else ()
    return shape if form == "same" else lambda s: ()


def value_specs(specs: Sequence[Any]) -> Iterator[Any]:
    """What stands for values in an argument list, in order."""
    for spec in specs:
        if isinstance(spec, (list, tuple)):
            yield from value_specs(spec)
        elif isinstance(spec, (In, Out, Const, Sym)):
            yield spec


def behind(case: OpCase) -> OpCase:
    """A case with an expression of its result in its epilogue."""
    chance = random.Random(zlib.crc32(case.name.encode()))
    bound = max(case.sizes)
    result = case.args_at(bound)[-1]
    kinds = [result.dtype, *(chance.choice(("float32", "float32", result.dtype, "bool", "int32")) for _ in range(2))]
    kinds = kinds[: chance.randint(1, 3)]
    made = drawn(chance, kinds, chance.randint(1, 6), stored=chance.random() < 0.5, beside=True)
    # A load knows sizes of one bound as one: of others it cannot tell which a call will bring together.
    sizes = {size for spec in flat_specs(case.args_at(bound)) if isinstance(spec, In) for size in (1, *spec.shape)}
    others = [broadcast_to(chance, lambda s: case.args_at(s)[-1].shape) for _ in kinds[1:]]
    others = [shape if sizes.issuperset(shape(bound)) else lambda s: () for shape in others]

    def args(size: int) -> list[Any]:
        graph = build(case, size)
        *read, out = graph.nodes[0].args
        specs = dict(zip(graph.values, value_specs(case.args_at(size)), strict=True))
        values: list[Any] = []
        anchor = Anchor(case.op, with_places(tuple(read), values), out.dtype, out.max_shape)
        operands = tuple(In(kind, shape(size)) for kind, shape in zip(kinds[1:], others, strict=True))
        composition = Composition(anchor, (), made.expression, True)
        results = stored_by(made, out.max_shape)
        return [composition, tuple(specs[value] for value in values), operands, made.numbers, results]

    def golden(*given: Any) -> tuple[torch.Tensor, ...]:
        *tensors, size = given
        own = sum(isinstance(spec, In) for spec in flat_specs(case.args_at(size)))
        computed = torch.as_tensor(case.golden(*tensors[:own], size))
        wide = Rounding().kept(computed, result.dtype)
        shape = case.args_at(size)[-1].shape
        return tuple(each.expand(shape) for each in meant(made, [wide.reshape(shape), *tensors[own:]]))

    allowed = tolerance(made.expression)
    return replace(
        case,
        name=f"{case.name} behind which {made.expression}",
        op=COMPOSED,
        form=case.op,
        args_at=args,
        golden=golden,
        atol=max(4 * case.atol, allowed["atol"]),
        rtol=max(4 * case.rtol, allowed["rtol"]),
    )


def in_front(case: OpCase) -> OpCase:
    """A case whose first tensor, which its operator loads, is an expression."""
    chance = random.Random(zlib.crc32(case.name.encode()) + 1)
    bound = max(case.sizes)
    loaded = flat_specs(case.args_at(bound))[0]
    whole = is_whole(loaded.dtype)
    kinds = [loaded.dtype, *(chance.choice((loaded.dtype, "bool", "int32" if whole else "float32")) for _ in range(2))]
    kinds = kinds[: chance.randint(1, 3)]
    made = drawn(chance, kinds, chance.randint(1, 5))
    # Floats that are near each other may be two whole numbers.
    while whole and not all(is_whole(call.dtype) for call in made.expression.calls):
        made = drawn(chance, kinds, chance.randint(1, 5))
    if made.expression.dtype != loaded.dtype:
        name = "to_bool" if loaded.dtype == "bool" else "copy"
        calls = (*made.expression.calls, Applied(name, (made.expression.results[0],), loaded.dtype))
        made = Made(replace(made.expression, calls=calls), made.numbers)
    sizes = {1, *loaded.shape}
    shapes = [broadcast_to(chance, lambda s: flat_specs(case.args_at(s))[0].shape) for _ in kinds[1:]]
    shapes = [shape if sizes.issuperset(shape(bound)) else lambda s: () for shape in shapes]

    def args(size: int) -> list[Any]:
        graph = build(case, size)
        *read, out = graph.nodes[0].args
        specs = dict(zip(graph.values, value_specs(case.args_at(size)), strict=True))
        x = graph.inputs[0]
        values: list[Any] = []
        places = list(with_places(tuple(None if each is x else each for each in read), values))
        places[read.index(x)] = Place(len(values))
        loading = Loading(Anchor(case.op, tuple(places), out.dtype, out.max_shape), made.expression, x.max_shape)
        operands = [In(kind, shape(size)) for kind, shape in zip(kinds[1:], shapes, strict=True)]
        # Before all others, as the tensor is that they give.
        return [
            loading, tuple(specs[value] for value in values), (In(loaded.dtype, x.max_shape), *operands), made.numbers,
            specs[out],
        ]  # fmt: skip

    def golden(*given: Any) -> Any:
        *tensors, size = given
        own = len([spec for spec in flat_specs(case.args_at(size)) if isinstance(spec, In)]) - 1
        (x,) = meant(made, tensors[own:])
        shape = flat_specs(case.args_at(size))[0].shape
        kind = getattr(torch, loaded.dtype)
        return case.golden(x.expand(shape).to(kind), *tensors[:own], size)

    allowed = tolerance(made.expression)
    return replace(
        case,
        name=f"{case.name} of {made.expression}",
        op=LOADED,
        form=case.op,
        args_at=args,
        golden=golden,
        atol=max(8 * case.atol, allowed["atol"]),
        rtol=max(8 * case.rtol, allowed["rtol"]),
    )


def is_loading(case: OpCase) -> bool:
    """Whether what an operator loads is the first tensor of a case; where its last bits would jump, it is whole."""
    first, *_, result = case.args_at(max(case.sizes))
    if OPS[case.op].traits.loads != OPS[case.op].parameters[0].name or not isinstance(first, In):
        return False
    return by_itself(first.dtype) and (is_whole(first.dtype) or not is_whole(result.dtype))


def fused(cases: Sequence[OpCase]) -> Iterator[OpCase]:
    """The first cases of every operator that takes an epilogue or a prologue, of each dtype, with one."""
    seen: dict[Any, int] = {}
    for case in cases:
        traits = OPS[case.op].traits
        if not (traits.epilogues or traits.loads):
            continue  # before its arguments are made, for which some ask torchao
        result = case.args_at(max(case.sizes))[-1]
        if not isinstance(result, Out) or not by_itself(result.dtype):
            continue
        kind = (OPS[case.op].run, result.dtype)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > 3:
            continue
        if traits.epilogues:
            yield behind(case)
        if is_loading(case):
            yield in_front(case)


CASES = [alone(seed) for seed in range(60)]
