"""Positional and keyword inputs of a call, bound in order; and detection of swapped inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, Protocol

from liveshape.errors import InputError, counted
from liveshape.formats.signature import Signature

_MAX_PERMUTED = 6


class InputInfo(Protocol):
    """Metadata of an input that is needed here."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def bounds(self) -> tuple[int, ...]: ...
    @property
    def is_tensor(self) -> bool: ...


def bind_inputs(method: str, signature: Signature, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
    """Bind positional and keyword inputs to the signature; those that the export has fixed may be omitted.

    Example: `bind_inputs("forward", signature, (x,), {"ids": ids})`.
    """
    taken = signature.inputs
    names = [each.name for each in taken]
    if not named and len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
        _check_list(method, names, inputs[0], signature)
    if not named and len(inputs) == len(taken):
        return inputs
    takes = f"{method} takes {counted(len(taken), 'input')}"
    if len(inputs) > len(taken):
        raise InputError(f"{takes}, {len(inputs)} given")
    given = dict(zip(names, inputs, strict=False))
    for name, value in named.items():
        if name not in names:
            raise InputError(f"{takes}, and none is called {name!r}: {', '.join(names)}")
        if name in given:
            raise InputError(f"{takes}, and {name} is given twice: in order and by name; give it once")
        given[name] = value
    missing = [each.name for each in taken if each.name not in given and not each.fixed]
    if missing:
        raise InputError(f"{takes}, {len(given)} given: {', '.join(missing)} missing")
    return [given.get(each.name, each.value) for each in taken]


def _check_list(method: str, names: Sequence[str], given: Sequence[Any], signature: Signature) -> None:
    """Raise for a list of all inputs given as the first input."""
    ranks = [rank for each in given if (rank := _rank(each)) is not None]
    sizes = signature.inputs[0].sizes if len(names) == 1 else None
    alone = sizes is not None and len(given) == 1 and ranks == [len(sizes)]
    if alone or (len(names) > 1 and (ranks or len(given) == len(names))):
        kind = type(given).__name__
        words = ", ".join(name if name.isidentifier() else name.replace(" ", "_") for name in names)
        raise InputError(
            f"{method} takes {counted(len(names), 'input')} one by one, a {kind} of {len(given)} was given in the "
            f"place of the first; call model({words}), or model(*inputs) for a {kind} of them"
        )


def _rank(value: Any) -> int | None:
    """Number of dimensions of an array-like; foreign objects may raise anything."""
    try:
        return len(value.shape)
    except Exception:
        return None


def fitting_order(takes: Sequence[InputInfo], given: Sequence[Any]) -> str:
    """The order in which the inputs of a refused call would fit, or "".

    Example: `fitting_order(model.inputs, [ids, x]) == "x, ids"`.
    """
    if not 1 < len(takes) == len(given) <= _MAX_PERMUTED:
        return ""
    try:
        fits = [[_fits(info, value) for value in given] for info in takes]
    except Exception:  # the call's own error says more
        return ""
    if all(fits[place][place] for place in range(len(takes))):
        return ""
    for order in permutations(range(len(takes))):
        if all(fits[place][source] for place, source in enumerate(order)):
            return ", ".join(info.name for info in takes)
    return ""


def _fits(info: InputInfo, value: Any) -> bool:
    if _rank(value) is None:
        return not info.is_tensor and type(value).__name__ == info.dtype
    same = str(value.dtype).removeprefix("torch.") == info.dtype and _rank(value) == len(info.bounds)
    return same and all(size <= most for size, most in zip(value.shape, info.bounds, strict=True))
