"""Programs in bfloat16: computed in float32, every result rounded as torch rounds it, at every live size."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import liveshape
from liveshape.cli import main
from liveshape.device.backends import open_device
from liveshape.errors import InputError
from liveshape.graph import Tensor
from liveshape.run.arrays import _from_bfloat16, checked
from liveshape.run.bfloat16 import rounded, to_float32
from tests.support.chains import Chain, executor_of
from tests.support.exporting import MethodSource, cached, lower_methods

MAX = 43
SIZES = (MAX, 5, 1, 42, 7, MAX)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(16), nn.Parameter(torch.rand(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return normed * torch.rsqrt((normed * normed).mean(-1, keepdim=True) + 1e-5) * self.scale


class Softmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.t() / 4, -1) @ x


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids).float().sum(-1).to(torch.bfloat16)


class Mixed(nn.Module):
    """Numbers that only exist in float32 in between, and results of several dtypes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        exact = x.float() / 3
        return exact.to(torch.bfloat16), exact, torch.cat([x, x * 2]), x > 0, x.argmax(-1)


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(16, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sums.add_(x.sum(0))
        return self.sums * 1


MODULES: dict[str, Callable[[], nn.Module]] = {
    kind.__name__: kind for kind in (Mlp, Norm, Softmax, Embedded, Mixed, State)
}


def made(name: str) -> tuple[nn.Module, Path]:
    torch.manual_seed(1)
    module = MODULES[name]().bfloat16().eval()
    example = torch.zeros(MAX, dtype=torch.int64) if name == "Embedded" else torch.randn(MAX, 16).bfloat16()
    source = MethodSource(module, (example,), ({0: torch.export.Dim("s", min=1, max=MAX)},))
    return module, cached(f"bfloat16_{name}", MODULES[name], lambda: lower_methods({"forward": source}))


def drawn(name: str, size: int) -> torch.Tensor:
    torch.manual_seed(size)
    return torch.randint(0, 11, (size,)) if name == "Embedded" else torch.randn(size, 16).bfloat16()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_gives_what_torch_gives(name: str) -> None:
    module, path = made(name)
    with liveshape.load(path, strict=True) as model:
        for size in SIZES:
            x = drawn(name, size)
            got = model(x)
            want = module(x)
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
            for one, other in pairs:
                expected = other.detach().float().numpy()
                assert one.shape == expected.shape
                # Sums in another order may fall to the other side of a rounding; torch allows itself as much.
                close = (1.6e-2, 2**-9) if other.dtype == torch.bfloat16 else (1e-6, 0)
                np.testing.assert_allclose(one.float().numpy(), expected, *close)
                assert one.dtype == other.dtype, "who gives torch tensors gets torch's dtypes"


def test_a_file_says_so_once_and_keeps_its_dtype(caplog: pytest.LogCaptureFixture) -> None:
    _, path = made("Mlp")
    with caplog.at_level(logging.WARNING, "liveshape"), liveshape.load(path) as model:
        model.method("forward")
        assert [info.dtype for info in (*model.inputs, *model.outputs)] == ["bfloat16", "bfloat16"]
        model(drawn("Mlp", 3))
    assert sum("bfloat16" in record.getMessage() for record in caplog.records) == 1


def test_the_commands_take_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, path = made("Mlp")
    assert main(["run", str(path), "--input-shapes", "7x16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == [7, 16]
    bits = np.zeros((2, 16), np.uint16)
    bits.tofile(tmp_path / "x.bin")
    assert main(["run", str(path), "--input-shapes", "2x16", "--inputs", str(tmp_path / "x.bin")]) == 0
    assert main(["inspect", str(path)]) == 0
    assert "bfloat16" in capsys.readouterr().out


def test_what_may_be_given() -> None:
    x = torch.randn(3, 16).bfloat16()
    value = Tensor("x", "bfloat16", (MAX, 16))
    expected = x.float().numpy()
    bits = x.view(torch.int16).numpy().view(np.uint16)
    for each in (x, x.float(), expected, bits, bits[:, ::-1][:, ::-1], x.clone().requires_grad_(), expected.tolist()):
        np.testing.assert_array_equal(checked(value, each), expected)
    # As other packages give it: a dtype of that name on 16 bits.
    named = {"dtype": SimpleNamespace(name="bfloat16"), "shape": (3, 16), "__array__": lambda self: bits}
    np.testing.assert_array_equal(_from_bfloat16(type("Foreign", (), named)()), expected)
    np.testing.assert_array_equal(checked(value, expected + 1e-6), rounded(expected + np.float32(1e-6)))
    for wrong in (expected.astype(np.float64), expected.astype(np.float16), bits.astype(np.int16)):
        with pytest.raises(InputError, match="x is float32"):
            checked(value, wrong)
    # Elsewhere they stay what the caller has to convert.
    with pytest.raises(InputError, match=r"\.float\(\)"):
        checked(Tensor("y", "float32", (MAX, 16)), x)


def test_every_number_is_rounded_as_torch_rounds_it() -> None:
    """On the host and in a kernel: ties to even, overflow to infinity, infinities, NaN and what is nearly nothing."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 1 << 32, 4096, np.uint32)
    ties = (draw.integers(0, 1 << 16, 512).astype(np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1, 1.00390625, 1.01171875], np.float32)
    numbers = np.concatenate([bits.view(np.float32), ties.view(np.float32), special])
    # Kernels may take what is smaller than any normal number for nothing.
    small = np.abs(numbers) < np.finfo(np.float32).tiny
    expected = torch.from_numpy(numbers).bfloat16().float().numpy()
    np.testing.assert_array_equal(rounded(numbers), expected)
    np.testing.assert_array_equal(to_float32(torch.from_numpy(numbers).bfloat16().view(torch.int16).numpy()), expected)
    numbers, expected = numbers[~small], expected[~small]
    chain = Chain()
    x = chain.input((len(numbers),))
    out = chain.node("aten::_to_copy.out", x, False, None, chain.tensor((len(numbers),), "bfloat16"))
    executor = executor_of(chain.graph(out), open_device())
    for size in (len(numbers), 7, 1, 1001):
        executor.poison()
        np.testing.assert_array_equal(executor.execute([numbers[:size]])[0], expected[:size])


def test_a_constant_and_a_number_of_its_own() -> None:
    table = torch.randn(5).bfloat16()
    chain = Chain()
    x = chain.input((5,), "bfloat16", static=True)
    data = memoryview(table.view(torch.int16).numpy()).cast("B")
    constant = Tensor("table", "bfloat16", (5,), data)
    chain.values.append(constant)
    scaled = chain.node("aten::mul.Scalar_out", constant, 1.5, chain.tensor((5,), "bfloat16"))
    added = chain.on_host("aten::fmax.out", scaled, x, chain.tensor((5,), "bfloat16"))
    first = chain.node("aten::item", constant, chain.scalar(value=0.0))
    executor = executor_of(chain.graph(added, first), open_device())
    other = torch.randn(5).bfloat16()
    got = executor.execute([other])
    np.testing.assert_array_equal(got[0], torch.fmax(table * 1.5, other).float().numpy())
    assert got[1] == table[0].item()


_UNARY = ("relu", "sigmoid", "tanh", "exp", "neg", "abs", "rsqrt", "sqrt", "cos", "reciprocal")
_BINARY = ("mul", "sub", "div", "add", "maximum")


def _random_row(names: list[str], sizes: list[int], width: int) -> None:
    """A row of operators, each on the result before it: each is right for what torch gives to it."""
    chain = Chain()
    x = chain.input((MAX, width), "bfloat16")
    results, value = [], x
    for name in names:
        out = chain.tensor((MAX, width), "bfloat16")
        extra = (1,) if name in ("add", "sub") else ()
        args = (value, x, *extra) if name in _BINARY else (value,)
        value = chain.node(f"aten::{name}.out", *args, out)
        results.append(value)
    executor = executor_of(chain.graph(*results), open_device())
    for size in sizes:
        torch.manual_seed(size)
        first = (torch.rand(size, width) + 0.5).bfloat16()
        executor.poison()
        got = executor.execute([first])
        before = first
        for name, each in zip(names, got, strict=True):
            operator = getattr(torch, name)
            want = operator(before, first) if name in _BINARY else operator(before)
            np.testing.assert_allclose(each, want.float().numpy(), 2**-7, 2**-9, err_msg=name)
            np.testing.assert_array_equal(each, rounded(each))
            before = torch.from_numpy(each.copy()).bfloat16()


_DRAWN = {
    "names": st.lists(st.sampled_from((*_UNARY, *_BINARY)), min_size=1, max_size=5),
    "sizes": st.lists(st.integers(1, MAX), min_size=1, max_size=3),
    "width": st.integers(1, 9),
}


@settings(max_examples=8, deadline=None)
@given(**_DRAWN)
def test_rows_of_operators(names: list[str], sizes: list[int], width: int) -> None:
    _random_row(names, sizes, width)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**_DRAWN)
def test_many_rows_of_operators(names: list[str], sizes: list[int], width: int) -> None:
    _random_row(names, sizes, width)
