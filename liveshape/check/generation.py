"""A language model as generation runs it: decode beside prefill, and kinds of activations and cache beside float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.check.language_models import LanguageCall
from liveshape.device.protocol import Device
from liveshape.errors import UnsupportedError
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32, INT8
from liveshape.llm.language_model import LanguageModel

_PREFIXES = (24, 1, 16, 2, 7)  # tokens of prefills, up and down on one graph, each beside decode of as many


@dataclass(frozen=True)
class Way:
    """A way to load a model: the kind of activations, and whether the KV cache is float16."""

    activations: str
    half_cache: bool

    def __str__(self) -> str:
        return f"{self.activations} activations, {'float16' if self.half_cache else 'float32'} cache"


# The root mean square of what logits may differ by, in standard deviations of the logits; docs/check.md says why.
EXACT = Way(FLOAT32, False)
TOLERANCES = {
    EXACT: 1e-3,
    Way(FLOAT32, True): 1e-2,
    Way(FLOAT16, False): 2e-2,
    Way(INT8, False): 1e-1,
}


@dataclass(frozen=True)
class Comparison:
    """Logits beside others of the same tokens: how far apart at worst, and where both have one most likely token."""

    way: str
    compared: str
    error: float
    tolerance: float
    agree: int
    count: int

    @property
    def right(self) -> bool:
        return self.error <= self.tolerance


def spread_error(got: Any, want: Any) -> float:
    """The root mean square of a difference of logits, in standard deviations of what is wanted; NaN is infinite.

    >>> spread_error(np.array([0.0, 2.0]), np.array([0.0, 4.0]))
    0.7071067811865476
    """
    got, want = (np.asarray(each, np.float64) for each in (got, want))
    error = float(np.sqrt(np.mean((got - want) ** 2)) / (want.std() or 1.0))
    return error if np.isfinite(error) else float("inf")


def compare_ways(
    path: Path,
    device: Device,
    steps: Sequence[LanguageCall],
    expected: Sequence[Any],
    exact: float = TOLERANCES[EXACT],
    begin: Callable[[str], None] = lambda what: None,
) -> tuple[list[Comparison], dict[str, str]]:
    """Load a model in every way that a device has, and compare; and the ways that it has not, with the reason.

    `expected` are the logits that a reference has after each of `steps`; `exact` is the tolerance of float32.

    Example: `rows, left = compare_ways(path, device, steps, logits)`.
    """
    found: list[Comparison] = []
    left: dict[str, str] = {}
    base: list[Any] = []
    tokens = tuple(token for step in steps for token in step.tokens)
    for way, tolerance in TOLERANCES.items():
        begin(str(way))
        if way.half_cache and not device.limits.half:
            left[str(way)] = "this device has no f16: halves lie there as floats, and it is float32, to the bit"
            continue
        if way.activations == FLOAT16 and not device.limits.matrices_of(FLOAT16):
            left[str(way)] = "this device has no matrix units: it is float32, to the bit"
            continue
        try:
            model = LanguageModel.load(path, device=device, activations=way.activations, half_cache=way.half_cache)
        except UnsupportedError as error:
            left[str(way)] = str(error)
            continue
        with model:
            rows = _Rows(way, exact if way == EXACT else tolerance)
            ids = [tokens[place % len(tokens)] for place in range(min(max(_PREFIXES), model.max_context))]
            decoded = list(_after(model, [[token] for token in ids]))
            if not base:
                base = decoded
                pairs = list(_generated(model, steps, expected))
                got, want = [one for one, _ in pairs], [other for _, other in pairs]
                found.append(rows.compared("generation with the reference", got, want))
            else:
                found.append(rows.compared("with float32", decoded, base))
            found.extend(_prefilled(model, rows, ids, decoded))
    return found, left


@dataclass(frozen=True)
class _Rows:
    way: Way
    tolerance: float

    def compared(self, what: str, got: Sequence[Any], want: Sequence[Any], exact: bool = False) -> Comparison:
        pairs = list(zip(got, want, strict=True))
        agree = sum(int(np.argmax(one) == np.argmax(other)) for one, other in pairs)
        error = max((spread_error(one, other) for one, other in pairs), default=0.0)
        return Comparison(str(self.way), what, error, 0.0 if exact else self.tolerance, agree, len(pairs))


def _after(model: LanguageModel, chunks: Sequence[Sequence[int]]) -> Iterator[Any]:
    """The logits after each of these chunks of one text."""
    model.reset()
    for chunk in chunks:
        model.prefill(chunk)
        yield np.array(model.logits())


def _generated(
    model: LanguageModel, steps: Sequence[LanguageCall], expected: Sequence[Any]
) -> Iterator[tuple[Any, Any]]:
    """The logits after each step beside the expected ones; steps that leave out positions are no generation."""
    for step, want in zip(steps, expected, strict=True):
        if not step.goes_on:
            model.reset()
        if step.position == model.position:
            model.prefill(step.tokens)
            yield np.array(model.logits()), want


def _prefilled(model: LanguageModel, rows: _Rows, ids: Sequence[int], decoded: Sequence[Any]) -> Iterator[Comparison]:
    """Prefill of several lengths beside decode, and the same calls again, which must give the same bytes."""
    counts = [count for count in _PREFIXES if count <= len(ids)]
    once, again = ([next(_after(model, [ids[:count]])) for count in counts] for _ in range(2))
    yield rows.compared("decode with prefill", [decoded[count - 1] for count in counts], once)
    yield rows.compared("the same calls again", again, once, exact=True)
