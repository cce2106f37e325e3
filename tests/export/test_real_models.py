"""SmolLM2-135M-Instruct and stories15M through `liveshape export`: the same text as torch on the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape.export.folder import Settings, export_folder
from liveshape.export.model.config import Mode, Quantization
from liveshape.export.sources.gguf import GgufFile
from liveshape.export.sources.opening import open_checkpoint
from tests.export import reference
from tests.export.gguf_files import q4_k_m, rewritten
from tests.export.perplexity import settings_of
from tests.export.real_models import smollm2, stories15m
from tests.export.torch_road import build_decoder

HERE = Path(__file__).parent
TEXT = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the sunshine. One day she saw a "
    "big red ball in the park and asked her mother if she could take it home. Her mother smiled and said that they "
    "should first look for the child who had lost it. They walked around the pond, and there sat a small boy who "
    "looked very sad. When he saw the ball he jumped up and laughed, and from that day on the two of them were the "
    "best of friends."
)

pytestmark = pytest.mark.slow


def expected(name: str) -> list[dict[str, Any]]:
    return list(json.loads((HERE / f"expected_{name}.json").read_text())["cases"])


SOURCES: dict[str, Callable[[], Path]] = {"stories15M": stories15m, "smollm2": smollm2}


@pytest.mark.parametrize("name", SOURCES)
def test_tokenizer(name: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    files = open_checkpoint(str(SOURCES[name]())).files
    tokenizer = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    for case in expected(name):
        assert tokenizer.encode(case["prompt"]).ids == case["ids"]


@pytest.mark.parametrize(("name", "quantization"), [("stories15M", "none"), ("smollm2", "none"), ("smollm2", "auto")])
def test_text_is_that_of_torch(name: str, quantization: Mode, tmp_path: Path) -> None:
    """Of floats, and by default of a file whose weights are 4 bits already: each keeps what it has."""
    settings = Settings(Quantization(quantization), max_seq=64, max_context=128)
    export_folder(open_checkpoint(str(SOURCES[name]())), tmp_path, settings)
    model = liveshape.load(tmp_path / "model.pte")
    for case in expected(name):
        tokens, position, found = case["ids"], 0, []
        for step in range(len(case["greedy"])):
            logits = np.asarray(model(np.array([tokens]), np.array([position])))[0]
            if step == 0:
                for token, logit in case["first_step_top5"]:
                    assert abs(logits[token] - logit) < 2e-3
            position += len(tokens)
            tokens = [int(logits.argmax())]
            found += tokens
        assert found == case["greedy"], case["prompt"]


@pytest.mark.parametrize(("name", "format_of"), [("Q8_0", lambda _: "Q8_0"), ("Q4_K_M", q4_k_m)])
def test_logits_of_blocks_are_those_of_torch(name: str, format_of: Callable[[str], str], tmp_path: Path) -> None:
    """SmolLM2 in other formats, by default, against torch on the weights that they mean."""
    rewritten(smollm2(), tmp_path / "model.gguf", format_of)
    checkpoint = open_checkpoint(str(tmp_path / "model.gguf"))
    found = {tensor.format.name for tensor in GgufFile(tmp_path / "model.gguf").tensors.values()}
    # Rows of 576 weights have no blocks of 256.
    assert found == {"F32", "Q8_0"} if name == "Q8_0" else {"F32", "Q8_0", "Q5_0", "Q4_K", "Q6_K"}
    export_folder(checkpoint, tmp_path, Settings(max_seq=64, max_context=128, full_logits=True))
    model = liveshape.load(tmp_path / "model.pte")
    weights = {tensor: checkpoint.read(tensor) for tensor in checkpoint.shapes}
    case = expected("smollm2")[0]
    ids = [*case["ids"], *case["greedy"]]
    wanted = reference.logits(settings_of(checkpoint.config), weights, ids)
    # A prompt, and the last token alone at its position.
    for part in (slice(0, len(ids) - 1), slice(len(ids) - 1, len(ids))):
        got = np.asarray(model(np.array([ids[part]]), np.array([part.start])))[0]
        np.testing.assert_allclose(got, wanted[part], rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", SOURCES)
def test_perplexity_of_4_bits(name: str, tmp_path: Path) -> None:
    """That of torch with the same quantized weights, and not far from that of the weights as they were."""
    tokenizers = pytest.importorskip("tokenizers")
    # As floats, which is what torch's quantizer takes.
    checkpoint = replace(open_checkpoint(str(SOURCES[name]())), stored=lambda _: None)
    ids = tokenizers.Tokenizer.from_str(checkpoint.files["tokenizer.json"].decode()).encode(TEXT).ids
    settings = Settings(Quantization("4w"), max_seq=64, max_context=160, full_logits=True)
    export_folder(checkpoint, tmp_path, settings)
    model = liveshape.load(tmp_path / "model.pte")
    ours = perplexity(lambda tokens, position: np.asarray(model(tokens, position)), ids)
    torch_4w = perplexity(eager(build_decoder(checkpoint, settings)), ids)
    plain = Settings(Quantization("none"), max_seq=64, max_context=160, full_logits=True)
    torch_plain = perplexity(eager(build_decoder(checkpoint, plain)), ids)
    assert ours == pytest.approx(torch_4w, rel=0.01)
    assert torch_4w < 1.3 * torch_plain


def eager(decoder: Any) -> Callable[[Any, Any], Any]:
    def run(tokens: Any, position: Any) -> Any:
        with torch.no_grad():
            return decoder(torch.from_numpy(tokens), torch.from_numpy(position)).numpy()

    return run


def perplexity(run: Callable[[Any, Any], Any], ids: list[int]) -> float:
    pieces = [run(np.array([ids[start : start + 64]]), np.array([start]))[0] for start in range(0, len(ids), 64)]
    logits = torch.from_numpy(np.concatenate(pieces)[:-1].astype(np.float64))
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).exp())
