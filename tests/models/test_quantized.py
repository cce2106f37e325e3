"""Quantized layers as exporters write them: ExecuTorch's fixtures at their tolerances, and torchao's eager results."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.errors import InputError
from tests.models.test_catalogue import assert_within, load, slowly
from tests.support.catalogue import dynamic_module, dynamic_shape_files, generated, recorded
from tests.support.exporting import cached, lower, quick, quiet

with quiet():
    from executorch.backends.webgpu.test.ops import test_embedding_q4gsw as upstream_embedding
    from executorch.backends.webgpu.test.ops import test_quantized_linear as upstream_linear
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, quantize_

HALVES = {"compile_options": {"force_fp16": True}}
MAX = 43
SIZES = (1, 2, 3, 5, 7, 16, 17, 33, MAX - 1, MAX)
QUICK = {"kv_proj", "steel_f16_edge", "pwdq_gs8", "pwdq_gs64"}


def quietly(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def inner(out: Path) -> None:
        with quiet(), quick(), contextlib.redirect_stdout(io.StringIO()):
            write(out)

    return inner


# ExecuTorch's fixtures


@pytest.mark.parametrize("name", slowly([config.name for config in upstream_linear.CONFIGS], QUICK))
def test_linear_of_executorch(name: str) -> None:
    config = next(each for each in upstream_linear.CONFIGS if each.name == name)

    def write(out: Path) -> None:
        upstream_linear.export_quantized_linear_model(config, str(out / "model.pte"), str(out / "golden.bin"))

    folder = generated(f"q4gsw.{name}", quietly(write), large=name not in QUICK)
    executor = load(folder / "model.pte")
    executor.poison()
    (got,) = executor.execute([upstream_linear._ramp_input(config.m, config.k).numpy()])
    golden = np.fromfile(folder / "golden.bin", "<f4").reshape(config.m, config.n)
    deep = config.k > 4096
    assert_within(got, golden, 1e-3 if deep else 1e-4, 1e-2 if deep else 1e-3, name)


@pytest.mark.parametrize("name", [shape.name for shape in upstream_embedding.SHAPES])
def test_embedding_of_executorch(name: str) -> None:
    def write(out: Path) -> None:
        paths = (str(out / part) for part in ("model.pte", "golden.bin", "ids.bin"))
        upstream_embedding.export_embedding_q4gsw_model(*paths, name)

    folder = generated(f"embedding_q4gsw.{name}", quietly(write))
    executor = load(folder / "model.pte")
    ids = np.fromfile(folder / "ids.bin", "<i4").astype(np.int64)
    executor.poison()
    (got,) = executor.execute([ids])
    assert_within(got, np.fromfile(folder / "golden.bin", "<f4").reshape(got.shape), 1e-6, 1e-6, name)


def write_dynamic_linears(out: Path) -> None:
    upstream = dynamic_module()
    other = {"k": upstream.LIN_ALT_K, "group": upstream.LIN_ALT_GROUP}
    upstream._export_dynamic_linear(str(out))
    upstream._export_dynamic_linear(str(out), n=upstream.LIN_SHMEM_N, prefix="dyn_linear_shmem", **other)
    upstream._export_dynamic_linear(str(out), prefix="dyn_linear_tiled", **other)
    upstream._export_static_linear(str(out), 1, "static_linear_m1")
    upstream._export_static_linear(str(out), 32, "static_linear_m32")


def write_large_dynamic_linears(out: Path) -> None:
    dynamic_module()._export_dynamic_bk64_linear_cases(str(out))


def run_dynamic_linears(folder: Path, pattern: str) -> None:
    files = sorted(folder.glob(pattern))
    assert files
    for pte in files:
        executor = load(pte)
        made = executor.device.counters.buffers, executor.device.counters.pipelines
        live = recorded(pte)
        for size in [*live, *reversed(live)]:
            given, golden = live[size]
            executor.poison()
            (got,) = executor.execute([given.reshape(size, -1)])
            assert_within(got, golden.reshape(got.shape), 5e-3, 0.0, f"{pte.stem} at {size}")
        assert made == (executor.device.counters.buffers, executor.device.counters.pipelines)


@pytest.mark.slow
def test_dynamic_linears_of_executorch() -> None:
    """Case I of its dynamic-shape oracle."""
    run_dynamic_linears(generated("q4gsw.dynamic", quietly(write_dynamic_linears)), "*.pte")


@pytest.mark.slow
def test_large_dynamic_linears_of_executorch() -> None:
    folder = generated("q4gsw.bk64", quietly(write_large_dynamic_linears), large=True)
    run_dynamic_linears(folder, "dyn_linear_bk64*.pte")


@pytest.mark.slow
def test_dynamic_embeddings_of_executorch() -> None:
    """Case K of its dynamic-shape oracle: as packed by the exporter, and by hand in both orders of nibbles."""
    fixtures = dynamic_shape_files(["dyn_embedding"])
    assert len(fixtures) == 3
    for name, fixture in fixtures.items():
        executor = load(fixture.pte)
        for size in (16, 8, 1, 8, 16):
            ids = np.fromfile(fixture.pte.with_name(f"{name}.S{size}.idx.bin"), "<i8")
            golden = np.fromfile(fixture.pte.with_name(f"{name}.S{size}.golden.bin"), "<f4")
            executor.poison()
            (got,) = executor.execute([ids])
            assert_within(got, golden.reshape(got.shape), 5e-3, 0.0, f"{name} at {size}")


# torchao's own eager results


class Layers(nn.Module):
    """Two layers, so that one quantized linear feeds another."""

    def __init__(self, depth: int, columns: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(depth, columns, bias=bias)
        self.down = nn.Linear(columns, depth, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Table(nn.Module):
    """Weights that every processor quantizes to the same integers: none of them is halfway between two."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randint(-28, 29, (50, 64)) / 16
        weight[:, ::32] = 2.0  # the largest of a group, which a negative one would put between -8 and -7
        self.table = nn.Embedding(50, 64, _weight=weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


def weights_only(group: int) -> Any:
    granularity = PerGroup(group) if group else PerAxis(0)
    return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=granularity)


def dynamic_activations(group: int) -> Any:
    return Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(group))


def layers(depth: int, columns: int, bias: bool, config: Any) -> nn.Module:
    torch.manual_seed(depth + columns)
    model = Layers(depth, columns, bias).eval()
    quantize_(model, config)
    return model


def exported(name: str, model: nn.Module, example: torch.Tensor, **options: Any) -> Path:
    size = torch.export.Dim("S", min=1, max=MAX)
    source = (layers, dynamic_activations, weights_only, Layers, Table, exported, repr((name, options)))
    return cached(f"quantized_{name}", source, lambda: lower(model, (example,), ({1: size},), **options))


FORMS = {
    "4w": (lambda: layers(64, 48, True, weights_only(16)), {}, 2e-5),
    "4w_by_axis": (lambda: layers(64, 32, False, weights_only(0)), {}, 2e-5),
    "4w_padded": (lambda: layers(60, 40, True, weights_only(20)), {}, 2e-5),
    "4w_f16": (lambda: layers(64, 48, True, weights_only(16)), HALVES, 2e-2),
    "8da4w": (lambda: layers(64, 96, True, dynamic_activations(32)), {}, 2e-5),
    "8da4w_f16": (lambda: layers(64, 96, True, dynamic_activations(32)), HALVES, 5e-2),
}


@pytest.mark.parametrize(
    "form",
    [form if form == "4w" else pytest.param(form, marks=pytest.mark.slow) for form in FORMS],
)
def test_layers_of_torchao(form: str) -> None:
    make, options, atol = FORMS[form]
    model = make()
    depth = model.up.in_features
    executor = load(exported(form, model, torch.randn(1, MAX, depth), **options))
    generator = torch.Generator().manual_seed(1)
    for size in [*SIZES, *reversed(SIZES)]:
        x = torch.randn(1, size, depth, generator=generator)
        executor.poison()
        (got,) = executor.execute([x.numpy()])
        golden = model(x).detach().numpy()
        assert got.shape == golden.shape
        # A value on the edge between two of the 8-bit steps may fall to either side: a few, and by one step.
        off = np.abs(got - golden) > atol
        assert off.mean() <= (0.02 if form == "8da4w" else 0), f"{form} at {size}: {np.abs(got - golden).max()}"
        assert np.abs(got - golden).max() <= max(atol, 0.03 if form.startswith("8da4w") else 0), f"{form} at {size}"


@pytest.mark.parametrize("options", [{}, HALVES], ids=("f32", "f16"))
def test_embedding_of_torchao(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    model = Table().eval()
    quantize_(model, weights_only(32), lambda module, name: isinstance(module, nn.Embedding))
    name = "embedding_f16" if options else "embedding"
    executor = load(exported(name, model, torch.zeros(1, MAX, dtype=torch.int64), **options))
    generator = torch.Generator().manual_seed(1)
    for size in SIZES:
        ids = torch.randint(0, 50, (1, size), generator=generator)
        executor.poison()
        (got,) = executor.execute([ids.numpy()])
        golden = model(ids).detach().numpy()
        np.testing.assert_allclose(got, golden, 2e-3 if options else 1e-6, 1e-6, err_msg=f"at {size}")


@pytest.mark.parametrize("wrong", [50, -1, 1 << 30])
def test_an_id_outside_the_vocabulary_is_refused(wrong: int) -> None:
    torch.manual_seed(3)
    model = Table().eval()
    quantize_(model, weights_only(32), lambda module, name: isinstance(module, nn.Embedding))
    executor = load(exported("embedding", model, torch.zeros(1, MAX, dtype=torch.int64)))
    with pytest.raises(InputError, match=f"{wrong} is outside of a table of 50 rows"):
        executor.execute([np.array([[1, wrong, 2]])])
    (got,) = executor.execute([np.array([[49, 0]])])
    np.testing.assert_allclose(got, model(torch.tensor([[49, 0]])).detach().numpy(), 1e-6, 1e-6)
