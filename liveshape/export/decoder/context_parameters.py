"""What a file says of the contexts that it can be loaded with, beside the one that it was written for.

Its rotary tables end at the context of the file; here is what more rows of them are made of. It is stored as JSON, the
result of a method, so that the file stays one that any runner takes.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from liveshape.errors import FormatError
from liveshape.export.decoder.rope import Rotation
from liveshape.export.model.config import LARGEST, MOST, ModelConfig, RopeScaling

METHOD = "get_context_parameters"
_LARGEST_HEAD = 1 << 16
_MOST_TEXT = 1 << 20  # characters; the largest heads have a few hundred factors


@dataclass(frozen=True)
class ContextParameters:
    """The context that a model was trained for, how it turns positions, and the context that its graph is right up to.

    `largest` is the sliding window of a model whose graph was written without masks for it; None is no bound.

    Example: `ContextParameters.of(config, 2048).trained`.
    """

    trained: int
    rotation: Rotation
    largest: int | None = None

    @classmethod
    def of(cls, config: ModelConfig, masked: int) -> ContextParameters:
        """Those of a model with masks for the windows that are shorter than the context `masked`."""
        windows = [config.window for layer in range(config.layers) if config.has_window(layer)]
        largest = min((each for each in windows if each is not None and each >= masked), default=None)
        return cls(config.context, Rotation.of(config), largest)

    @classmethod
    def read(cls, text: Any) -> ContextParameters:
        """The same from what `text()` gave; a FormatError for anything else."""
        try:
            if not isinstance(text, str) or len(text) > _MOST_TEXT:
                raise ValueError("no JSON text")
            fields = json.loads(text)
            turning = dict(fields["rotation"])
            scaling = turning.pop("rope_scaling")
            numbers = {name: _number(value) for name, value in turning.items()}
            rotation = Rotation(**numbers, rope_scaling=None if scaling is None else _scaling(scaling))
            _check_lengths(rotation)
            return cls(
                _size(fields["trained"]), rotation, None if fields["largest"] is None else _size(fields["largest"])
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(
                f"{METHOD} of the program gives {_short(text)}: {error}; it is damaged, or of another version: "
                "export the model again"
            ) from error

    @property
    def reach(self) -> int:
        """The context up to which the model was trained and the graph is right."""
        return self.trained if self.largest is None else min(self.trained, self.largest)

    def text(self) -> str:
        """As a file keeps it."""
        return json.dumps(asdict(self))


def _scaling(fields: Any) -> RopeScaling:
    given = dict(fields)
    kind = given.pop("kind")
    if not isinstance(kind, str):
        raise ValueError(f"a scaling of the kind {kind!r}")
    return RopeScaling(kind, **{name: _number(value) for name, value in given.items()})  # type: ignore[arg-type]


def _check_lengths(rotation: Rotation) -> None:
    """Divisors of frequencies are as many as there are."""
    given = [rotation.rope_factors, *(vars(rotation.rope_scaling).values() if rotation.rope_scaling else ())]
    if _size(rotation.rotary_size) > _LARGEST_HEAD:
        raise ValueError(f"a head of {rotation.rotary_size} elements")
    pairs = rotation.rotary_size // 2
    wrong = next((len(each) for each in given if isinstance(each, tuple) and len(each) not in (0, pairs)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} factors for {pairs} pairs of a head")


def _number(value: Any) -> Any:
    """A number within reason, a tuple of such, or None."""
    if isinstance(value, list):
        return tuple(_number(each) for each in value)
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError(f"{value!r} where a number is expected")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or not 1 <= value < MOST:
        raise ValueError(f"a context of {value!r}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
