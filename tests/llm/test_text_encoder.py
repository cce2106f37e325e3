"""Encoders: vectors are torch's, at every length, with padding and without, whichever pooling."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.llm.embedding.text_encoder import TextEncoder
from liveshape.llm.embedding.vector_pooling import pooled, stored_pooling
from liveshape.metadata import TensorInfo
from tests.support.encoders import MOST, SIZE, STATIC, VOCABULARY, dynamic, hidden, static, write_encoder

TEXTS = ("a", "The cat", "Once upon a time there was a dog")


def expected(ids: list[int], pooling: str) -> np.ndarray:
    rows, vector = hidden(ids)
    chosen = {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1], "none": vector}[pooling]
    return (chosen / chosen.norm()).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "none"])
def test_vectors_are_those_of_torch_and_of_unit_length(tmp_path: Path, pooling: str) -> None:
    encoder = TextEncoder.load(write_encoder(tmp_path / "encoder", dynamic()), pooling=pooling)
    try:
        found = encoder.embed(TEXTS)
        assert found.shape == (len(TEXTS), SIZE)
        assert (encoder.size, encoder.max_tokens) == (SIZE, MOST)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        for text, vector in zip(TEXTS, found, strict=True):
            np.testing.assert_allclose(vector, expected(encoder.encode(text), pooling), atol=1e-5)
        assert len({len(encoder.encode(text)) for text in TEXTS}) == len(TEXTS)
        assert encoder.embed([]).shape == (0, SIZE)
    finally:
        encoder.close()


def test_a_static_program_is_given_padding_behind_its_mask(tmp_path: Path) -> None:
    encoder = TextEncoder.load(write_encoder(tmp_path / "encoder", static()) / "model.pte")
    try:
        assert encoder.max_tokens == STATIC
        for ids in ([7], [7, 300, 5], list(range(50, 50 + STATIC))):
            np.testing.assert_allclose(encoder.vector(encoder.encode(ids)), expected(ids, "mean"), atol=1e-5)
    finally:
        encoder.close()


def test_what_cannot_be_a_text_is_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "encoder", static())
    encoder = TextEncoder.load(folder)
    try:
        for wrong, reason in (
            ("", "is empty"),
            ([], "is empty"),
            ([VOCABULARY], "is no token"),
            ([-1], "is no token"),
            ([1] * (STATIC + 1), "shorten it"),
            ([1.5], "integers"),
            (7, "integers"),
            ("\ud800", "no text"),
        ):
            with pytest.raises(InputError, match=reason):
                encoder.encode(wrong)
        with pytest.raises(InputError, match="list of texts"):
            encoder.embed("a")
    finally:
        encoder.close()
    with pytest.raises(InputError, match="mean, cls, last, none"):
        TextEncoder.load(folder, pooling="max")


def test_the_pooling_of_a_folder_is_followed(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "encoder", dynamic())
    assert stored_pooling(folder) is None
    file = folder / "1_Pooling" / "config.json"
    file.parent.mkdir()

    def stored(**modes: Any) -> str | None:
        file.write_text(json.dumps({"word_embedding_dimension": SIZE, **modes}))
        return stored_pooling(folder)

    assert stored(pooling_mode_cls_token=False, pooling_mode_mean_tokens=True) == "mean"
    assert stored(pooling_mode_lasttoken=True) == "last"
    for modes in ({"max_tokens": True}, {"cls_token": True, "mean_tokens": True}, {"cls_token": False}):
        with pytest.raises(UnsupportedError, match="--pooling chooses another"):
            stored(**{f"pooling_mode_{name}": on for name, on in modes.items()})
    with pytest.raises(FormatError, match="true or false"):
        stored(pooling_mode_cls_token="yes")
    assert stored(pooling_mode_cls_token=True) == "cls"
    encoder = TextEncoder.load(folder)
    try:
        ids = encoder.encode(TEXTS[1])
        np.testing.assert_allclose(encoder.vector(ids), expected(ids, "cls"), atol=1e-5)
    finally:
        encoder.close()


def model_of(inputs: list[TensorInfo], outputs: list[TensorInfo]) -> Any:
    return SimpleNamespace(inputs=tuple(inputs), outputs=tuple(outputs), device=SimpleNamespace(lost=False))


IDS = TensorInfo("input_ids", "int64", (1, 8), dynamic=False)
MASK = TensorInfo("attention_mask", "int64", (1, 8), dynamic=False)
ROWS = TensorInfo("output 0", "float32", (1, 8, 4), dynamic=False)
VECTOR = TensorInfo("output 0", "float32", (1, 4), dynamic=False)


@pytest.mark.parametrize(
    ("inputs", "outputs", "pooling"),
    [
        ([], [ROWS], None),
        ([TensorInfo("x", "float32", (1, 8), dynamic=False)], [ROWS], None),
        ([IDS, TensorInfo("pictures", "float32", (1, 8), dynamic=False)], [ROWS], None),
        ([TensorInfo("input_ids", "int64", (2, 8), dynamic=False)], [ROWS], None),
        ([MASK], [ROWS], None),
        ([IDS], [VECTOR], "mean"),
        ([IDS], [ROWS], "none"),
        ([IDS], [TensorInfo("output 0", "int64", (1, 8, 4), dynamic=False)], None),
    ],
)
def test_a_program_that_is_no_encoder_is_refused(inputs: Any, outputs: Any, pooling: str | None) -> None:
    tokenizer: Any = None
    with pytest.raises(UnsupportedError):
        TextEncoder(model_of(inputs, outputs), tokenizer, pooling)


def test_without_a_mask_only_whole_lengths_are_taken() -> None:
    tokenizer: Any = SimpleNamespace(vocab_size=9)
    encoder = TextEncoder(model_of([IDS], [ROWS]), tokenizer)
    with pytest.raises(InputError, match="static at 8, and without a mask"):
        encoder.vector([1, 2])


def test_a_vector_of_zeros_stays_one() -> None:
    assert pooled(np.zeros((3, 2)), "mean").tolist() == [0, 0]
