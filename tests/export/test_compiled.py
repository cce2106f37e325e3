"""`liveshape.compile`: a module is called as it always was, at any size, and gives what it gave."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import liveshape
from liveshape import InputError, ShapeError, UnsupportedError
from tests.export.live_programs import Total


class Encoder(nn.Module):
    """Named and optional arguments, a mask, tied weights, and outputs that nest."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layer = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, mask: Tensor | None = None, *, scale: Tensor | None = None) -> dict[str, Any]:
        x = self.embed(tokens)
        if mask is not None:
            x = x * mask.unsqueeze(-1)
        x = self.layer(nn.functional.scaled_dot_product_attention(x, x, x))
        x = nn.functional.gelu(self.head(x))
        if scale is not None:
            x = x * scale
        return {"logits": x, "parts": (x.mean(-1), [x.argmax(-1)]), "nothing": None}


def made(module: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return module().eval().requires_grad_(False)


def check(ours: Any, theirs: Any) -> None:
    found, nested = pytree.tree_flatten(ours)
    wanted, expected = pytree.tree_flatten(theirs)
    assert nested == expected
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        if isinstance(other, Tensor):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_it_is_called_as_the_module_is() -> None:
    module = made(Encoder)
    sizes = {0: torch.export.Dim("b", max=4), 1: torch.export.Dim("s", max=40)}
    shapes = {"tokens": sizes, "mask": sizes, "scale": None}
    mask, scale = torch.ones(4, 40), torch.tensor([2.0])
    with liveshape.compile(module, (tokens(4, 40), mask), {"scale": scale}, dynamic_shapes=shapes) as fast:
        assert [info.name for info in fast.inputs] == ["tokens", "mask", "scale"]
        for batch, length in ((4, 40), (1, 1), (3, 17), (2, 40), (4, 1)):
            ids = tokens(batch, length)
            kept = (ids > 20).float()
            wanted = module(ids, kept, scale=scale)
            check(fast(ids, kept, scale=scale), wanted)
            check(fast(scale=scale, mask=kept, tokens=ids), wanted)
        with pytest.raises(ShapeError, match="41"):
            fast(tokens(1, 41), torch.ones(1, 41), scale=scale)
        with pytest.raises(InputError, match="missing a required argument"):
            fast(mask=mask)
        with pytest.raises(InputError, match="nest"):
            fast(tokens(4, 40), [mask], scale=scale)
        with pytest.raises(InputError, match="None was given"):
            fast(tokens(4, 40), scale=scale)  # the mask's default, where the example had a tensor
    with pytest.raises(InputError, match="closed"):
        fast(tokens(4, 40), mask, scale=scale)


def test_what_varies_becomes_dynamic(caplog: pytest.LogCaptureFixture) -> None:
    module, bounds = made(Encoder), []
    fast = liveshape.compile(module, (tokens(1, 7),))
    with caplog.at_level(logging.WARNING, "liveshape"):
        for batch, length in ((1, 7), (1, 9), (1, 3), (1, 16), (3, 5), (1, 1), (4, 16), (2, 33), (1, 64)):
            check(fast(tokens(batch, length)), module(tokens(batch, length)))
            bounds.append(fast.inputs[0].bounds)
    assert bounds == [(1, 7), (1, 16), (1, 16), (1, 16), (4, 16), (4, 16), (4, 16), (4, 64), (4, 64)]
    told = [record.getMessage() for record in caplog.records if "compiled again" in record.getMessage()]
    assert len(told) == 3
    assert told[0] == "Encoder is compiled again: dimension 1 of tokens up to 16"
    with pytest.raises(InputError, match="mask was not among the arguments of the example"):
        fast(tokens(1, 7), torch.ones(1, 7))
    fast.close()


def test_an_interrupt_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made(Encoder)
    fast = liveshape.compile(module, (tokens(1, 7),))

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fast, "_build", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fast(tokens(1, 9))
    for length in (7, 9, 4):
        check(fast(tokens(1, length)), module(tokens(1, length)))


def test_state_stays_on_the_device_and_is_never_dropped() -> None:
    module, fast = Total().eval(), liveshape.compile(Total().eval(), (torch.ones(3, 4),))
    for seed in range(3):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        check(fast(x), module(x))
    with pytest.raises(ShapeError, match="dynamic_shapes"):
        fast(torch.ones(5, 4))
    check(fast(x), module(x))
    rows = torch.export.Dim("rows", min=1, max=8)
    fast, module = liveshape.compile(Total().eval(), (torch.ones(8, 4),), dynamic_shapes=({0: rows},)), Total().eval()
    for count in (8, 1, 5, 2):
        check(fast(torch.ones(count, 4)), module(torch.ones(count, 4)))


class Swapped(nn.Module):
    """Buffers that change places, and one that follows a view of another."""

    def __init__(self) -> None:
        super().__init__()
        for place, name in enumerate("abc"):
            self.register_buffer(name, torch.full((3,), float(place)))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old)
        self.c.copy_(self.a.view(3) + x)
        return x + self.a, old, self.b.view(1, 3), self.c


def test_buffers_that_change_places() -> None:
    module, fast = Swapped().eval(), liveshape.compile(Swapped().eval(), (torch.ones(3),))
    for call in range(4):
        check(fast(torch.full((3,), float(call))), module(torch.full((3,), float(call))))


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 8 else x * 3


def test_a_size_that_the_module_branches_on_is_refused_and_the_others_stay() -> None:
    fast = liveshape.compile(Chosen().eval(), (torch.ones(7),))
    for size in (7, 8, 7, 8, 7):
        if size == 7:
            check(fast(torch.ones(7)), torch.full((7,), 3.0))
        else:
            with pytest.raises(ShapeError, match="dimension 0 of x, which was 7: compile it once for each"):
                fast(torch.ones(8))
    fast.close()
    for size in (7, 9):
        with pytest.raises(InputError, match="closed"):
            fast(torch.ones(size))


def test_a_file_of_it_is_the_same_program(tmp_path: Path) -> None:
    module = made(Encoder)
    fast = liveshape.compile(module, (tokens(2, 7),))
    assert fast.save(tmp_path / "model.pte") == (tmp_path / "model.pte").stat().st_size
    found = liveshape.load(tmp_path / "model.pte")(tokens(2, 7))[0]
    torch.testing.assert_close(found, module(tokens(2, 7))["logits"], rtol=1e-4, atol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"module.eval\(\)"):
        liveshape.compile(Encoder(), (tokens(1, 7),))
    with pytest.raises(InputError, match="Module is compiled, function was given"):
        liveshape.compile(made, (tokens(1, 7),))
    with pytest.raises(InputError, match="did you mean dynamic_shapes"):
        liveshape.compile(made(Encoder), (tokens(1, 7),), dynamic_shape=None)  # type: ignore[call-arg]
    fast = liveshape.compile(nn.Linear(4, 4).eval(), (torch.ones(2, 4),))
    with pytest.raises(InputError, match="no_grad"):
        fast(torch.ones(2, 4, requires_grad=True))
    with torch.no_grad():
        fast(torch.ones(2, 4, requires_grad=True))
    with pytest.raises(InputError, match=r"\.to\(torch.float32\)"):
        fast(torch.ones(2, 4, dtype=torch.float64))
    with pytest.raises(ShapeError, match="rank"):
        fast(torch.ones(4))
    with pytest.raises(UnsupportedError, match=r"test_compiled.py:\d+\): cond has no kernel"):
        liveshape.compile(Branching().eval(), (torch.ones(3),))


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


@dataclasses.dataclass
class Output:
    first: Tensor
    second: Tensor


class Registered(nn.Module):
    def forward(self, pair: tuple[Tensor, dict[str, Tensor]]) -> Output:
        x, more = pair
        return Output(x + more["y"], x.relu())


def test_arguments_that_nest_and_outputs_of_a_registered_class() -> None:
    torch.export.register_dataclass(Output, serialized_type_name="tests.Output")
    fast = liveshape.compile(Registered().eval(), ((torch.ones(3), {"y": torch.ones(3)}),))
    x, y = torch.randn(3), torch.randn(3)
    found = fast((x, {"y": y}))
    assert isinstance(found, Output)
    check((found.first, found.second), (x + y, x.relu()))


class Scaled(nn.Module):
    """Sizes as numbers: powers, quotients, and live fills."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        width = x.shape[1]
        filled = torch.full((x.shape[0], 3), width / 2.0)
        return x * width**-0.5, 2 - x, width - x, 1 / width - x, x.sum(1) / width, filled + x[:, :3]


class Numbers(nn.Module):
    """Numbers where operators take tensors, whole ones and others, and what torch promotes."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        whole = (x * 10).to(torch.int32)
        return x // 0.3, x % 0.7, whole // 3, whole / 4, whole * 1.5, torch.where(x > 0, x, 0.5), x.long() % 4, 2**x


class Spelled(nn.Module):
    """What torch decomposes, and what is written in place."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        y[:, 1:] += 1
        y[0] = 0
        values, places = x.topk(2, 1)
        rows = torch.einsum("ab,cb->ac", x, x)
        return y, values, places, rows, x.std(1), x.flip(1), torch.linalg.vector_norm(x, dim=1), x.half().float()


@pytest.mark.parametrize("kind", [Scaled, Numbers, Spelled])
def test_numbers_and_spellings(kind: type[nn.Module]) -> None:
    module = kind().eval()
    shapes = ({0: torch.export.Dim("n", min=3, max=9), 1: torch.export.Dim("k", min=4, max=12)},)
    fast = liveshape.compile(module, (torch.rand(9, 12),), dynamic_shapes=shapes)
    for size in ((9, 12), (3, 4), (5, 7), (9, 5), (4, 12)):
        x = torch.randn(size, generator=torch.Generator().manual_seed(sum(size)))
        check(fast(x), module(x))


def test_threads_share_one_module() -> None:
    module, fast = made(Encoder), liveshape.compile(made(Encoder), (tokens(1, 7),))
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for length in range(1 + seed, 20, 3):
                check(fast(tokens(1, length)), module(tokens(1, length)))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_the_page_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "compile.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), {})
