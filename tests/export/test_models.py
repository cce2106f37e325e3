"""Random models of each family: eager against a decoder written a second time, and their one delegate on the device."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape.errors import ShapeError
from liveshape.export.decoder.context_parameters import METHOD, ContextParameters
from liveshape.export.folder import Settings
from liveshape.export.model.config import Quantization
from liveshape.formats import open_program
from liveshape.formats.signature import SIGNATURE
from liveshape.graph import Limits
from liveshape.lower.lowering import lower
from tests.export.exported import CONTEXT, MAX, constants, exported, operators
from tests.export.reference import logits
from tests.export.tiny import DEEP, LLAMA, QWEN2, QWEN3, checkpoint_of
from tests.export.torch_decoder import Decoder
from tests.export.torch_road import build_decoder
from tests.export.torch_weights import GroupedWeight

BOUNDS: dict[str, Any] = {"max_seq": MAX, "max_context": CONTEXT}
FOUR, NONE = Quantization("4w"), Quantization("none")
MODELS: Mapping[str, tuple[dict[str, Any], Settings]] = {
    "llama_4w": (LLAMA, Settings(FOUR, **BOUNDS)),
    "deep_4w": (DEEP, Settings(Quantization("4w", 16), **BOUNDS)),
    "qwen3_4w": (QWEN3, Settings(FOUR, **BOUNDS)),
    "qwen2_4w": (QWEN2, Settings(Quantization("4w", embedding=False), **BOUNDS)),
    "llama_none_full": (LLAMA, Settings(NONE, full_logits=True, **BOUNDS)),
    "qwen3_8da4w": (QWEN3, Settings(Quantization("8da4w"), **BOUNDS)),
}
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 128, CONTEXT)]


def decoder_of(settings: dict[str, Any], options: Settings) -> Decoder:
    return build_decoder(checkpoint_of(settings), options)


def dequantized(settings: dict[str, Any], decoder: Decoder) -> dict[str, np.ndarray[Any, Any]]:
    """The weights that the decoder really has, under the names of the checkpoint."""
    checkpoint = checkpoint_of(settings)
    names = {
        "embedding": "model.embed_tokens",
        "norm": "model.norm",
        "head": "lm_head",
        "input_norm": "input_layernorm",
        "output_norm": "post_attention_layernorm",
        "attention": "self_attn",
        "feed_forward": "mlp",
    }
    found = {name: checkpoint.read(name) for name in checkpoint.shapes}
    for path, module in decoder.named_modules():
        if isinstance(module, GroupedWeight):
            name = ".".join(names.get(part, part) for part in path.split("."))
            name = name if name.startswith(("model.", "lm_head")) else f"model.{name}"
            values = module.values.numpy().astype(np.float32)
            # A tied table may be quantized for the one of its two uses alone.
            rows = settings["vocab_size"] if name == "lm_head.weight" else None
            found[name] = (values * module.scales.numpy().repeat(module.group, axis=1))[:rows]
    return found


@pytest.mark.parametrize("name", [name for name in MODELS if "8da" not in name])
def test_eager_equals_the_reference(name: str) -> None:
    """In pieces, so that the caches and positions count."""
    settings, options = MODELS[name]
    decoder = decoder_of(settings, options)
    weights = dequantized(settings, decoder)
    for name_of, before in checkpoint_of(settings).shapes.items():
        assert weights[name_of].shape == before
    expected = logits(settings, weights, TOKENS)
    with torch.no_grad():
        for start, end in itertools.pairwise([0, 7, 8, 9, 31, 95, CONTEXT]):
            got = decoder(torch.tensor([TOKENS[start:end]]), torch.tensor([start])).numpy()
            wanted = expected[None, start:end] if options.full_logits else expected[None, end - 1]
            np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4, err_msg=f"{start} to {end}")


# Every length and position takes some seconds on the device, so `make test` does it for two of them.
QUICK = ("llama_4w", "qwen3_4w")


@pytest.fixture(
    params=[pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in MODELS], scope="module"
)
def model(request: pytest.FixtureRequest) -> tuple[str, Path]:
    return request.param, exported(request.param, *MODELS[request.param])


def test_one_delegate_of_known_operators(model: tuple[str, Path]) -> None:
    name, path = model
    settings, options = MODELS[name]
    found = operators(path)
    layers, quantized = settings["num_hidden_layers"], options.quantization.mode
    norms = (4 if "qwen3" in name else 2) * layers + 1
    assert found.count("et_vk.rms_norm.default") == norms
    assert found.count("sdpa_with_kv_cache.default") == layers
    assert found.count("et_vk.apply_rotary_emb_hf.default") == layers
    linear = {"4w": "et_vk.linear_q4gsw", "8da4w": "et_vk.linear_dq8ca_q4gsw", "none": "aten.linear"}[quantized]
    assert found.count(f"{linear}.default") == 7 * layers + 1
    four_bit = options.quantization.four_bit and options.quantization.embedding and settings["hidden_size"] % 32 == 0
    assert found.count("et_vk.embedding_q4gsw.default" if four_bit else "aten.embedding.default") == 1
    assert not [each for each in found if "dequantize" in each or "permute" in each or "transpose" in each]


def test_layers_of_one_input_run_as_one(model: tuple[str, Path]) -> None:
    name, path = model
    settings, options = MODELS[name]
    with open_program(path) as program:
        found = [node.name for node in lower(program, "forward", {}).nodes]
        wide = [node.name for node in lower(program, "forward", {}, Limits(max_bindings=9)).nodes]
    layers = 0 if options.quantization.mode == "none" else settings["num_hidden_layers"]
    assert ends_in(found, "qkv_linear_q4gsw") == ends_in(found, "gated_linear_q4gsw") == layers
    assert found.count("liveshape.residual_linear_q4gsw") == 2 * layers
    assert ends_in(found, ".linear_q4gsw.default", "rms_norm_linear_q4gsw") == (1 if layers else 0)
    assert found.count("liveshape.rotary_to_cache") == settings["num_hidden_layers"]
    rounded = found.count("liveshape.quantize_rows"), found.count("liveshape.fake_quantize_rows")
    # The depth after attention, 4 heads of 20, is no multiple of 32: the rows of that layer stay floats.
    assert rounded == ((3 * layers + 1, layers) if options.quantization.mode == "8da4w" else (0, 0))
    # Keys that are normed on their way to the rotation turn by themselves.
    assert ends_in(wide, "rotary_linear_q4gsw") == (0 if "qwen3" in name else layers)


def ends_in(names: list[str], *ends: str) -> int:
    return sum(name.endswith(ends) for name in names)


def test_methods_that_runners_ask(model: tuple[str, Path]) -> None:
    name, path = model
    settings, _ = MODELS[name]
    with open_program(path) as program:
        found = constants(program)
        tokens, position = program.signatures["forward"].inputs
    assert (tokens.name, [str(size) for size in tokens.sizes or ()]) == ("tokens", ["1", "length"])
    assert (position.name, [str(size) for size in position.sizes or ()]) == ("input_pos", ["1"])
    del found[SIGNATURE]
    (parameters,) = found.pop(METHOD)
    assert ContextParameters.read(parameters).trained == CONTEXT
    assert found == {
        "get_bos_id": [1],
        "get_eos_ids": [2, 3],
        "get_max_seq_len": [MAX],
        "get_max_context_len": [CONTEXT],
        "get_n_layers": [settings["num_hidden_layers"]],
        "get_vocab_size": [settings["vocab_size"]],
        "use_kv_cache": [True],
        "use_sdpa_with_kv_cache": [True],
        "enable_dynamic_shape": [True],
    }


def test_executorch_reads_it_too(model: tuple[str, Path]) -> None:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(model[1])
    assert "forward" in program.method_names
    assert [program.load_method(name).execute([]) for name in ("get_eos_ids", "get_max_seq_len")] == [[2, 3], [MAX]]


def test_on_the_device_at_every_length_and_position(model: tuple[str, Path]) -> None:
    """All tokens once, in pieces; then any piece again, in any order, finds the same cache."""
    name, path = model
    settings, options = MODELS[name]
    decoder = decoder_of(settings, options)
    loaded = liveshape.load(path)
    # Activations are rounded to 8 bits by their largest: the last bit of that decides which way a rounding goes.
    tolerance = 5e-2 if options.quantization.mode == "8da4w" else 1e-3
    lengths = (1, 2, 3, 7, 31, 64, MAX)
    pieces = [(start, min(MAX, CONTEXT - start)) for start in range(0, CONTEXT, MAX)]
    anywhere = [(start, length) for length in lengths for start in {0, 1, 5, CONTEXT // 2, CONTEXT - length}]
    order = np.random.default_rng(1).permutation(len(anywhere))
    pieces += [anywhere[index] for index in order if sum(anywhere[index]) <= CONTEXT]
    with torch.no_grad():
        for start, length in pieces:
            tokens, position = np.array([TOKENS[start : start + length]]), np.array([start])
            wanted = decoder(torch.from_numpy(tokens), torch.from_numpy(position)).numpy()
            got = np.asarray(loaded(tokens, position))
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=f"{length} at {start}")
    with pytest.raises((ShapeError, liveshape.LiveshapeError), match=str(CONTEXT)):
        loaded(np.array([TOKENS[:3]]), np.array([CONTEXT - 2]))
