"""An encoder program and its tokenizer: a text to a vector of unit length."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import InputError, UnsupportedError, counted
from liveshape.llm.arguments import path_of, text_of, token_ids
from liveshape.llm.embedding.vector_pooling import POOLINGS, Vector, pooled, stored_pooling
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.metadata import TensorInfo
from liveshape.model import Model
from liveshape.model import load as load_program

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.progress import Progress

_INTEGERS = ("int64", "int32")
_FLOATS = ("float32", "float16")
# What an input is by a part of its name, and in the order of transformers where the file has no names.
_IDS, _MASK, _TYPES, _POSITIONS = "ids", "mask", "type", "position"
_UNNAMED = (_IDS, _MASK, _TYPES)


class TextEncoder:
    """Runs a program that takes token ids (1, S), and perhaps a mask, types and positions of the same shape, and gives
    hidden states (1, S, D) or one vector (1, D).

    `pooling` makes one vector of hidden states: "mean", "cls" (the first token), "last", or "none" for a program that
    gives one vector; by default as the model's own 1_Pooling/config.json says, or else the mean.

    Example: `TextEncoder.load("all-MiniLM-L6-v2-pte").embed(["Hello", "World"]).shape == (2, 384)`.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, pooling: str | None = None) -> None:
        self._model, self.tokenizer = model, tokenizer
        self._device = model.device
        self._roles = _roles(model.inputs)
        self._output, self._pooling = _output(model.outputs, pooling)
        self.size = model.outputs[self._output].bounds[-1]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Device | str | int | None = None,
        pooling: str | None = None,
        progress: Progress | None = None,
    ) -> TextEncoder:
        """Load an encoder from a `.pte` with tokenizer.json beside it, or from the folder of both.

        Example: `TextEncoder.load("encoder", pooling="cls")`.
        """
        file = path_of(path)
        if pooling is not None and pooling not in POOLINGS:
            raise InputError(f"pooling is {pooling!r}: it must be {', '.join(POOLINGS)}")
        tokenizer = Tokenizer.load(file)  # first: cheap, and fails before weights are uploaded
        chosen = pooling or stored_pooling(file if file.is_dir() else file.parent)
        model = load_program(file, device=device, progress=progress)
        try:
            return cls(model, tokenizer, chosen)
        except BaseException:
            model.close()
            raise

    @property
    def max_tokens(self) -> int:
        """The most tokens of a text."""
        return min(info.dims[1].max for info in self._model.inputs)

    @property
    def lost(self) -> bool:
        """Whether the device was lost: load the encoder again."""
        return self._device.lost

    def with_tokenizer(self, tokenizer: Tokenizer) -> TextEncoder:
        """The same encoder, its texts encoded by another tokenizer of the same vocabulary.

        Example: `encoder.with_tokenizer(encoder.tokenizer.limited(512, "this server"))`.
        """
        made = copy.copy(self)
        made.tokenizer = tokenizer
        return made

    def encode(self, text: Any) -> list[int]:
        """The token ids of a text, or ids as they are given, checked.

        Example: `encoder.encode("Hello")`.
        """
        limited = self.tokenizer.limited(self.max_tokens, "the encoder")
        ids = limited.encode(text_of(text, "a text")) if isinstance(text, str) else token_ids(text)
        if not ids or (isinstance(text, str) and not text):
            raise InputError("a text is empty: there is nothing to embed")
        wrong = next((each for each in ids if not 0 <= each < self.tokenizer.vocab_size), None)
        if wrong is not None:
            raise InputError(f"{wrong} is no token: ids are from 0 to {self.tokenizer.vocab_size - 1}")
        if len(ids) > self.max_tokens:
            raise InputError(
                f"the text is {counted(len(ids), 'token')} long, the encoder takes {self.max_tokens:,}: shorten it"
            )
        return ids

    def vector(self, ids: list[int]) -> Vector:
        """The vector of a text that `encode` made ids of.

        Example: `encoder.vector(encoder.encode("Hello")).shape == (encoder.size,)`.
        """
        given = [
            _row(role, ids, self._length(info, len(ids)), info.dtype)
            for role, info in zip(self._roles, self._model.inputs, strict=True)
        ]
        found = self._model(*given)
        outputs = found if isinstance(found, tuple) else (found,)
        rows = np.asarray(outputs[self._output])
        return pooled(rows if self._pooling == "none" else rows[0, : len(ids)], self._pooling)

    def embed(self, texts: Iterable[str]) -> npt.NDArray[np.float32]:
        """The vectors of several texts, as rows.

        Example: `similarity = encoder.embed(["cat", "dog"]) @ encoder.embed(["pet"]).T`.
        """
        if isinstance(texts, str):
            raise InputError("a list of texts is expected, one text was given")
        rows = [self.vector(self.encode(text)) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.size), np.float32)

    def _length(self, info: TensorInfo, tokens: int) -> int:
        """The least legal length that holds so many tokens; without a mask only their own."""
        dim = info.dims[1]
        length = dim.max - (dim.max - max(tokens, dim.min)) // dim.multiple * dim.multiple
        if length > tokens and _MASK not in self._roles:
            raise InputError(
                f"a text of {counted(tokens, 'token')}: {info.name} is {dim.text}, and without a mask among its inputs "
                "the program cannot tell padding from text; export it with a dynamic length or with an attention mask"
            )
        return length

    def close(self) -> None:
        """Free the device memory."""
        self._model.close()


def _roles(inputs: tuple[TensorInfo, ...]) -> list[str]:
    """What each input is; raises unless these are the inputs of an encoder."""
    named = not all(info.name == f"input {place}" for place, info in enumerate(inputs))
    found = []
    for place, info in enumerate(inputs):
        parts = [part for part in (_MASK, _TYPES, _POSITIONS) if part in info.name]
        usual = _UNNAMED[place] if not named and place < len(_UNNAMED) else None
        role = parts[0] if parts else _IDS if place == 0 else usual
        fits = len(info.bounds) == 2 and info.dims[0].min <= 1 <= info.dims[0].max
        if role is None or not fits or (role == _IDS and info.dtype not in _INTEGERS):
            listing = ", ".join(map(str, inputs))
            raise UnsupportedError(
                f"the program takes ({listing}); an encoder takes token ids int64 [1, S], and perhaps attention_mask, "
                "token_type_ids and position_ids of the same shape"
            )
        found.append(role)
    if _IDS not in found:
        raise UnsupportedError("the program takes no token ids; an encoder takes them first, int64 [1, S]")
    return found


def _output(outputs: tuple[TensorInfo, ...], pooling: str | None) -> tuple[int, str]:
    """Which output is pooled, and how."""
    ranks = {
        rank: [place for place, info in enumerate(outputs) if info.dtype in _FLOATS and len(info.bounds) == rank]
        for rank in (2, 3)
    }
    if pooling is None:
        pooling = "mean" if ranks[3] else "none"
    found = ranks[2] if pooling == "none" else ranks[3]
    if not found:
        needed = "one vector [1, D]" if pooling == "none" else "hidden states [1, S, D]"
        raise UnsupportedError(
            f"pooling {pooling!r} needs {needed}; the program gives ({', '.join(map(str, outputs))})"
        )
    return found[0], pooling


def _row(role: str, ids: list[int], length: int, dtype: str) -> npt.NDArray[Any]:
    """An input of a text, padded to a length; which token pads does not matter behind a mask."""
    row = np.zeros((1, length), dtype)
    if role == _IDS:
        row[0, : len(ids)] = ids
    elif role == _MASK:
        row[0, : len(ids)] = 1
    elif role == _POSITIONS:
        row[0] = np.arange(length)
    return row
