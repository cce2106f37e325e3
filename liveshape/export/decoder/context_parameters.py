"""Metadata of a `.pte` for loading it with a longer context than it was exported for.

The RoPE tables in the file end at its own context length; these are the parameters to compute more rows. Stored as
JSON, the result of a constant method, so that other runners still load the file.
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
    """The trained context length, the RoPE parameters, and the largest context at which the graph is correct.

    `largest` is the sliding window of a model whose graph was exported without masks for it; None is no bound.

    Example: `ContextParameters.of(config, 2048).trained`.
    """

    trained: int
    rotation: Rotation
    largest: int | None = None

    @classmethod
    def of(cls, config: ModelConfig, masked: int) -> ContextParameters:
        """The parameters of a model whose graph has masks for sliding windows shorter than the context `masked`."""
        windows = [config.window for layer in range(config.layers) if config.has_window(layer)]
        largest = min((each for each in windows if each is not None and each >= masked), default=None)
        return cls(config.context, Rotation.of(config), largest)

    @classmethod
    def read(cls, text: Any) -> ContextParameters:
        """Parse and validate the JSON of `text()`; a FormatError for anything else."""
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
        """The largest context for which the model was trained and the graph is correct."""
        return self.trained if self.largest is None else min(self.trained, self.largest)

    def text(self) -> str:
        """Serialize to JSON."""
        return json.dumps(asdict(self))


def _scaling(fields: Any) -> RopeScaling:
    given = dict(fields)
    kind = given.pop("kind")
    if not isinstance(kind, str):
        raise ValueError(f"a scaling of the kind {kind!r}")
    return RopeScaling(kind, **{name: _number(value) for name, value in given.items()})  # type: ignore[arg-type]


def _check_lengths(rotation: Rotation) -> None:
    """Check that there is one RoPE frequency factor per rotated pair of a head."""
    given = [rotation.rope_factors, *(vars(rotation.rope_scaling).values() if rotation.rope_scaling else ())]
    if _size(rotation.rotary_size) > _LARGEST_HEAD:
        raise ValueError(f"a head of {rotation.rotary_size} elements")
    pairs = rotation.rotary_size // 2
    wrong = next((len(each) for each in given if isinstance(each, tuple) and len(each) not in (0, pairs)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} factors for {pairs} pairs of a head")


def _number(value: Any) -> Any:
    """A finite number, a tuple of such, or None."""
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
