"""Every family of decoders at tiny sizes: a folder as the Hub has it, written, run, and held to two other decoders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.cli import main
from liveshape.errors import UnsupportedError
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.model.checkpoint import check_tensors
from liveshape.export.model.config import Mode, Quantization
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.weights.storage import RoundedStorage
from liveshape.llm.language_model import LanguageModel
from liveshape.model import Model
from tests.export.family_models import CONTEXT, MODELS, as_stored, folder_of
from tests.export.family_reference import logits
from tests.export.tiny import Arrays, write_folder

Array = np.ndarray[Any, Any]
MAX = 24
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 128, CONTEXT)]
PROMPT, NEW = 20, 16  # longer than any window, and than what longrope was trained for
# From the start, by one token, up to the bound, beyond half of the cache, to its end; then earlier ones once more.
PIECES = ((0, 1), (1, 3), (4, 7), (11, MAX), (35, 1), (36, MAX), (60, 4), (0, 7), (33, 3), (63, 1))


@pytest.fixture(params=["mistral", "gemma2", "gemma3", "granite", "mixtral", "gpt2", "gpt_oss"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Arrays]:
    path, weights = folder_of(tmp_path / "folder", MODELS[request.param])
    return request.param, path, weights


@pytest.fixture(params=MODELS, scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Arrays]:
    path, weights = folder_of(tmp_path_factory.mktemp(request.param), MODELS[request.param])
    return request.param, path, weights


def loaded(folder: Path, out: Path, **options: Any) -> Model:
    options = {"quantization": Quantization("none"), "max_seq": MAX, "max_context": CONTEXT, **options}
    export_folder(open_folder(folder), out, Settings(**options))
    return liveshape.load(out / MODEL)


def test_at_every_length_and_position(folder: tuple[str, Path, Arrays], tmp_path: Path) -> None:
    name, path, weights = folder
    expected = logits(MODELS[name], weights, TOKENS)
    model = loaded(path, tmp_path, full_logits=True)
    for start, length in PIECES:
        got = np.asarray(model(np.array([TOKENS[start : start + length]]), np.array([start])))
        wanted = expected[None, start : start + length]
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3, err_msg=f"{length} at {start}")


def test_as_a_language_model(text: tuple[str, Path, Arrays], tmp_path: Path) -> None:
    """Its caches are rows at positions, so that a text may be cut, and draft tokens be verified many at a time."""
    name, path, weights = text
    export_folder(open_folder(path), tmp_path, Settings(Quantization("none"), MAX, CONTEXT))
    wanted = list(TOKENS[:PROMPT])
    while len(wanted) < PROMPT + NEW:
        wanted.append(int(logits(MODELS[name], weights, wanted)[-1].argmax()))
    with LanguageModel.load(tmp_path / MODEL) as model:
        assert list(model.stream(TOKENS[:PROMPT], max_tokens=NEW)) == wanted[PROMPT:]
        model.truncate(PROMPT - 5)
        again = list(model.stream(TOKENS[PROMPT - 5 : PROMPT], max_tokens=NEW, lookahead="ngram"))
    assert again == wanted[PROMPT:]


@pytest.mark.parametrize("name", ["cohere2", "gpt2", "gpt_oss", "llama_yarn"])
def test_in_a_context_that_was_not_written(name: str, tmp_path: Path) -> None:
    path, weights = folder_of(tmp_path / "folder", MODELS[name])
    export_folder(open_folder(path), tmp_path, Settings(Quantization("none"), MAX, CONTEXT // 2))
    with LanguageModel.load(tmp_path / MODEL, max_context=CONTEXT) as model:
        model.prefill(TOKENS[:-1])
        found = np.asarray(model.logits()).reshape(-1)
    np.testing.assert_allclose(found, logits(MODELS[name], weights, TOKENS[:-1])[-1], rtol=1e-3, atol=1e-3)
    if name == "gpt2":
        with pytest.raises(UnsupportedError, match="ends at position 64"):
            LanguageModel.load(tmp_path / MODEL, max_context=CONTEXT + 1)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."], ids=["4", "5"])
def test_the_text_of_a_model_that_sees_pictures(prefix: str, tmp_path: Path) -> None:
    """Transformers 4 and 5 have other names for its tensors."""
    settings = MODELS["gemma3"]
    path, weights = folder_of(tmp_path / "text", settings)
    text = open_folder(path)
    both = {name.replace("model.", prefix, 1): weight for name, weight in weights.items()}
    both |= {f"{'' if prefix[0] == 'l' else 'model.'}vision_tower.patches.weight": np.zeros((4, 4), np.float32)}
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": settings, "model_type": "gemma3"}
    write_folder(tmp_path / "both", outer | {"eos_token_id": 2}, both)
    found = open_folder(tmp_path / "both")
    check_tensors(found)
    assert found.config == replace(text.config, text_only=True)
    assert all(np.array_equal(found.read(name), text.read(name)) for name in text.shapes)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("gemma2", "4w"),
        ("phi4_mini", "auto"),
        ("qwen3moe", "auto"),
        ("gpt2", "4w"),
        pytest.param("starcoder2", "4w", marks=pytest.mark.slow),
        pytest.param("gpt_oss", "auto", marks=pytest.mark.slow),
    ],
)
def test_with_weights_of_few_bits(name: str, mode: Mode, tmp_path: Path) -> None:
    """Against the weights that the file really has; those of a router stay as they are."""
    settings = MODELS[name]
    path, _ = folder_of(tmp_path / "folder", settings)
    storage = RoundedStorage(open_folder(path), Quantization(mode))
    rounded = {}
    for tensor, shape in storage.shapes.items():
        rounded[tensor] = storage.floats(tensor)
        if len(shape) == 2 and not tensor.endswith(("mlp.gate.weight", "embed_positions.weight")):
            layout = storage.layout(tensor, lookup=False)
            assert layout is not None
            made = storage.grouped(tensor, layout, slice(None))
            rounded[tensor] = made.codes * made.scales.repeat(made.group, axis=1)
            if made.minima is not None:
                rounded[tensor] += made.minima.repeat(made.group, axis=1)
    expected = logits(settings, as_stored(settings, rounded), TOKENS[:MAX])
    model = loaded(path, tmp_path, quantization=Quantization(mode))
    for start, length in ((0, 9), (9, MAX - 9)):
        got = np.asarray(model(np.array([TOKENS[start : start + length]]), np.array([start])))[0]
        np.testing.assert_allclose(got, expected[start + length - 1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name", ["gemma2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3", "cohere2", "gpt_oss"))]
)
def test_in_float16(name: str, tmp_path: Path) -> None:
    path, weights = folder_of(tmp_path / "folder", MODELS[name])
    got = np.asarray(loaded(path, tmp_path, half=True)(np.array([TOKENS[:MAX]]), np.array([0])))[0]
    np.testing.assert_allclose(got, logits(MODELS[name], weights, TOKENS[:MAX])[-1], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("mixtral", "computed by all 4 experts and the 2 that it chose count"),
        ("phi4_mini_long", "that of texts longer than 16 tokens"),
        ("llama_dynamic", "that of texts of 64 tokens, for shorter ones too"),
    ],
)
def test_what_a_user_may_not_expect(name: str, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = folder_of(tmp_path / "folder", MODELS[name])
    assert main(["export", str(path), "-o", str(tmp_path / "out"), "--quant", "none", "--max-context", "64"]) == 0
    assert note in " ".join(capsys.readouterr().out.split())


def greedy(model: Model, tokens: list[int], count: int) -> list[int]:
    """A prompt in two pieces, then token by token."""
    half, found, position = len(tokens) // 2, list(tokens), 0
    for piece in (tokens[:half], tokens[half:]):
        row = np.asarray(model(np.array([piece]), np.array([position])))
        position += len(piece)
    for _ in range(count):
        found.append(int(row.argmax()))
        row = np.asarray(model(np.array([found[-1:]]), np.array([position])))
        position += 1
    return found[len(tokens) :]


LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Settings that a family does not look at, that come from elsewhere, or that are not there at all (None here).
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral_layer_types": ("mistral", {"layer_types": ["full_attention", "sliding_attention"], "head_dim": 16}),
    "phi3_layer_types": ("phi3", {"layer_types": ["full_attention", "sliding_attention"]}),
    "llama_partial_rotary": ("llama_yarn", {"rope_scaling": ..., "partial_rotary_factor": 0.5}),
    "llama_hidden_activation": ("llama_yarn", {"hidden_activation": "relu"}),
    "llama_both_ropes": ("llama_yarn", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 99.0}}),
    "llama_original_beside": ("llama_yarn", {"rope_scaling": LLAMA_3, "original_max_position_embeddings": 8}),
    "gemma3_attention_cap": ("gemma3", {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0}),
    "qwen2_window_layers": ("qwen2", {"layer_types": ..., "max_window_layers": 0}),
    "smollm3_windows": ("smollm3", {"use_sliding_window": True, "sliding_window": 5}),
    "qwen3moe_windows": ("qwen3moe", {"use_sliding_window": True, "sliding_window": 5}),
    "mixtral_says_little": ("mixtral", {"rope_theta": ..., "rms_norm_eps": ...}),
    "olmo2_says_little": ("olmo2", {"rope_theta": ..., "rms_norm_eps": ...}),
    "starcoder2_relu": ("starcoder2", {"layer_types": ["full_attention"] * 2, "hidden_act": "relu"}),
    "glm_rope_parameters": ("glm", {"rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.25}}),
    "cohere2_pattern": ("cohere2", {"layer_types": ..., "sliding_window_pattern": 2, "logit_scale": ...}),
    "gpt2_scale": ("gpt2", {"scale_attn_weights": False, "n_inner": 100, "activation_function": "gelu"}),
    "gpt_oss_says_little": (
        "gpt_oss",
        {"rope_scaling": ..., "rope_theta": ..., "swiglu_limit": ..., "swiglu_alpha": 1.2},
    ),
}


@pytest.mark.slow  # transformers comes with `make test-all`
@pytest.mark.parametrize("name", ODD)
def test_settings_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from tests.support.packages import declare_libraries

    declare_libraries()
    from transformers import AutoModelForCausalLM

    base, changes = ODD[name]
    settings = {key: value for key, value in {**MODELS[base], **changes}.items() if value is not ...}
    path, _ = folder_of(tmp_path / "folder", settings)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        expected = model(torch.tensor([TOKENS[:MAX]]), use_cache=False).logits[0].numpy()
    found = np.asarray(loaded(path, tmp_path, full_logits=True)(np.array([TOKENS[:MAX]]), np.array([0])))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow  # transformers comes with `make test-all`
def test_as_transformers_computes_it(folder: tuple[str, Path, Arrays], tmp_path: Path) -> None:
    name, path, weights = folder
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from tests.support.packages import declare_libraries

    declare_libraries()
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        found = model(torch.tensor([TOKENS]), use_cache=False).logits[0].numpy()
        ids = torch.tensor([TOKENS[:PROMPT]])
        for _ in range(NEW):
            last = model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, last], 1)
    np.testing.assert_allclose(logits(MODELS[name], weights, TOKENS), found, rtol=1e-4, atol=1e-4)
    # Of a dynamic embedding a file has the table of one length: that of whole texts of the context that it is made for.
    context = 40 if name == "llama_dynamic" else CONTEXT
    assert greedy(loaded(path, tmp_path, max_context=context), TOKENS[:PROMPT], NEW) == ids[0, PROMPT:].tolist()
