"""Input validation against the exported signature: each size by its range, and guards between sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.errors import InputError, ShapeError
from liveshape.formats.signature import ARITHMETIC, COMPARISONS, Guard, InputSignature, Signature, Size
from liveshape.graph import Shape, Tensor
from liveshape.plan.dimensions import static_below, static_results
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState


class CallCheck:
    """Validates the calls of one plan; a call at the previous call's shapes costs one comparison.

    Example: `Executor(plan, device, check=CallCheck(plan, program.signatures["forward"]))`.
    """

    def __init__(self, plan: Plan, signature: Signature) -> None:
        self._plan, self._signature = plan, signature
        self.names = [each.name for each in signature.inputs]
        self._legal: list[Any] | None = None
        self._due = True  # whether output shapes are unchecked since the input shapes changed
        self._static = static_results(plan.graph)

    def inputs(self, given: list[Any]) -> None:
        """Raise unless the input shapes and scalars are legal, before anything is uploaded."""
        if given != self._legal:
            check_call(self._signature, given)
            self._due = True
            self._legal = given

    def results(self, live: PlanState) -> None:
        """Raise if a static tensor of the file would be smaller: the program was not exported for these shapes."""
        if not self._due:
            return
        for tensor in self._static:
            shape = live.tensor(tensor).shape
            if shape != tensor.max_shape:
                self._refuse(live, tensor, shape)
        self._due = False

    def _refuse(self, live: PlanState, tensor: Tensor, shape: Shape) -> None:
        inputs = [value for value in self._plan.graph.inputs if isinstance(value, Tensor)]
        shapes = {value: live.tensor(value).shape for value in inputs}
        found = static_below(self._plan, shapes)
        named = [f"{value.name}: dimension {axis} is {shapes[value][axis]}" for value, axis in found]
        given = "; ".join(named) or ", ".join(f"{value.name}: {size} was given" for value, size in shapes.items())
        bounds = {value.max_shape[axis] for value, axis in found}
        static = f", it is static at {bounds.pop()}" if len(bounds) == 1 else ""
        raise ShapeError(
            f"{given}{static}: {tensor.name} would be {shape}, and the file says that it is always {tensor.max_shape}; "
            "give the size that it was exported at, or export with a dynamic dimension"
        )


def check_call(signature: Signature, given: Sequence[Any]) -> None:
    """Raise unless these inputs satisfy the signature: a shape per tensor, scalars as values.

    Example: `check_call(program.signatures["forward"], [(2, 8), 3])`.
    """
    seen: dict[str, tuple[int, InputSignature, int]] = {}  # symbol -> value, and where it was bound first
    for taken, shape in zip(signature.inputs, given, strict=True):
        if taken.fixed and not _same(taken.value, shape):
            raise InputError(
                f"{taken.name} is fixed at {taken.value!r} in this program, {shape!r} was given; give {taken.value!r}, "
                "or export again with the other value"
            )
        if taken.sizes is None:
            continue
        if len(shape) != len(taken.sizes):
            raise ShapeError(f"{taken.name}: rank {len(shape)} was given, {len(taken.sizes)} is needed: {shape}")
        for axis, (size, live) in enumerate(zip(taken.sizes, shape, strict=True)):
            _check_size(taken, axis, size, live, shape)
            if size.symbol is None:
                continue
            value = (live - size.offset) // size.scale
            known, other, place = seen.setdefault(size.symbol, (value, taken, axis))
            if known != value:
                raise ShapeError(_unequal(taken, axis, size, live, known, other, place))
    for guard in signature.guards:
        if not _holds(guard, given):
            raise ShapeError(_unguarded(guard, signature, given))


def _same(value: Any, given: Any) -> bool:
    return bool(value == given) or (value != value and given != given)


def _check_size(taken: InputSignature, axis: int, size: Size, live: int, shape: Shape) -> None:
    if size.min <= live <= size.max and (live - size.offset) % size.scale == 0:
        return
    where = f"{taken.name}: dimension {axis} is {live}"
    given = f"{shape} was given"
    if size.symbol is None:
        raise ShapeError(f"{where}, it is static at {size.max}: {given}; export with a dynamic dimension to vary it")
    advice = "pad or cut it"
    if live < size.min:
        advice = "pad it, or export with a smaller min"
    elif live > size.max:
        advice = "split or cut it, or export with a larger max"
    raise ShapeError(f"{where}, {allowed_text(size)} allowed: {given}; {advice}")


def allowed_text(size: Size) -> str:
    """The allowed sizes of a dimension, with a verb, for errors.

    >>> allowed_text(Size(1, 43, "s")), allowed_text(Size(0, 64, "s", 8)), allowed_text(Size(8, 8))
    ('1 to 43 are', 'multiples of 8 from 0 to 64 are', '8 is')
    """
    if size.min == size.max:
        return f"{size.max} is"
    if size.scale == 1:
        return f"{size.min} to {size.max} are"
    rest = size.offset % size.scale
    many = f"multiples of {size.scale}{f' and {rest} more' if rest else ''}"
    return f"{many} from {size.min} to {size.max} are"


def _unequal(
    taken: InputSignature, axis: int, size: Size, live: int, known: int, other: InputSignature, place: int
) -> str:
    assert other.sizes is not None
    first = other.sizes[place]
    met = first.scale * known + first.offset
    there = f"dimension {place} of {other.name}" if other is not taken else f"dimension {place}"
    wanted = size.scale * known + size.offset
    relation = (
        f"it must equal {there}, which is {met}"
        if (size.scale, size.offset) == (first.scale, first.offset)
        else f"it must be {wanted}: it is {size}, {there} is {first} and {met}"
    )
    return f"{taken.name}: dimension {axis} is {live}, {relation}; give sizes that fit each other"


def _value(term: Guard, given: Sequence[Any]) -> int:
    if isinstance(term, int):
        return term
    name, left, right = term
    return int(given[left][right]) if name == "size" else ARITHMETIC[name](_value(left, given), _value(right, given))


def _holds(guard: Guard, given: Sequence[Any]) -> bool:
    assert isinstance(guard, tuple)
    name, left, right = guard
    return COMPARISONS[name](_value(left, given), _value(right, given))


def _unguarded(guard: Guard, signature: Signature, given: Sequence[Any]) -> str:
    places = list(dict.fromkeys(_places(guard)))
    inputs = signature.inputs
    sizes = [f"dimension {axis} of {inputs[place].name} is {given[place][axis]}" for place, axis in places]
    subject = inputs[places[0][0]].name if places else "the inputs"
    return (
        f"{subject}: {', '.join(sizes)}; the program was exported for sizes with {_text(guard, signature)}; "
        "give others, or export again with an example of such sizes"
    )


def _places(term: Guard) -> list[tuple[int, int]]:
    if isinstance(term, int):
        return []
    name, left, right = term
    return [(left, right)] if name == "size" else [*_places(left), *_places(right)]


def _text(term: Guard, signature: Signature, inner: bool = False) -> str:
    if isinstance(term, int):
        return str(term)
    name, left, right = term
    if name == "size":
        return f"{signature.inputs[left].name}.shape[{right}]"
    left, right = _text(left, signature, True), _text(right, signature, True)
    text = f"{name}({left}, {right})" if name in ("min", "max") else f"{left} {name} {right}"
    return f"({text})" if inner and name not in ("min", "max") else text
