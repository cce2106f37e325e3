"""ExecuTorch's own exporters of attention, caches and rotary embeddings, against their goldens at their tolerances.

What the other backend must refuse (head sizes that are no multiple of four, batches, halves) is served here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from liveshape.errors import ShapeError
from liveshape.run.executor import Executor
from tests.models.test_catalogue import assert_within, load
from tests.support.catalogue import dynamic_shape_files, generated
from tests.support.exporting import quiet

with quiet():
    from executorch.backends.webgpu.test.ops import test_rope as rope
    from executorch.backends.webgpu.test.ops import test_rope_hf as rope_hf
    from executorch.backends.webgpu.test.ops import test_sdpa as sdpa
    from executorch.backends.webgpu.test.ops import test_update_cache as update_cache

HEAVY = {
    "small_d",
    "seqB",
    "llama1b_decode_4k",
    "llama1b_decode_8k",
    "llama1b_prefill_512",
    "llama1b_prefill_2048",
    "llama3",
    "llama3_prefill",
    "llama1b_prefill",
    "gqa31_prefill",
    "gqa31_decode",
    "mha_ctxodd",
    "qwen3_prefill",
}


def named(items: list[Any], key: Callable[[Any], str], heavy: Collection[str] = HEAVY) -> list[Any]:
    return [pytest.param(item, id=key(item), marks=pytest.mark.slow if key(item) in heavy else ()) for item in items]


def floats(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    return np.fromfile(path, "<f4").reshape(shape)


def run(executor: Executor, *inputs: Any) -> list[np.ndarray]:
    executor.poison()
    return executor.execute([np.asarray(given) for given in inputs])


def attention_within(got: np.ndarray, golden: np.ndarray, halves: bool, where: str) -> None:
    """Where the golden rounds the cache to halves, which a float32 cache does not, it is that much less exact."""
    assert_within(got, golden, *((2e-3, 1e-2) if halves else (1e-4, 1e-3)), where)


def with_rows(cache: np.ndarray, rows: np.ndarray, position: int) -> np.ndarray:
    cache = np.array(cache)
    cache[:, position : position + rows.shape[1]] = rows
    return cache


@pytest.mark.parametrize("config", named(sdpa.CONFIGS, lambda config: config.name))
def test_sdpa(config: Any) -> None:
    folder = generated(
        f"sdpa.{config.name}",
        lambda out: sdpa.export_sdpa_model(config, str(out / "model.pte"), str(out / "golden.bin")),
        large=config.name in HEAVY,
    )
    q, k, v, *caches = (given.numpy() for given in sdpa._det_inputs(config))
    *held, got = run(load(folder / "model.pte"), q, k, v, *caches)
    attention_within(got, floats(folder / "golden.bin", q.shape), config.kv_f16, config.name)
    for after, before, rows in zip(held, caches, (k, v), strict=True):
        np.testing.assert_array_equal(after, with_rows(before, rows, config.input_pos))


def of_one(seq: Any, export: Callable[[str], None], sequences: str) -> Callable[[Path], None]:
    """An exporter of every sequence as a writer of one."""

    def write(out: Path) -> None:
        with mock.patch.object(sdpa, sequences, [seq]):
            export(str(out))

    return write


@pytest.mark.parametrize("seq", named(sdpa.REPLAY_SEQS, lambda seq: seq.name, {*HEAVY, "small"}))
def test_replay(seq: Any) -> None:
    """A program for every step, all on the cache that the one before gave back."""
    folder = generated(f"sdpa_replay.{seq.name}", of_one(seq, sdpa.export_replay_sequences, "REPLAY_SEQS"))
    caches = [np.zeros((1, seq.cmax, seq.hkv, seq.d), np.float32)] * 2
    position = 0
    for step, rows in enumerate(seq.seq_lens):
        base = folder / f"sdpa_{seq.name}_step{step}_S{rows}_pos{position}"
        q, k, v = (given.numpy() for given in sdpa._step_inputs(seq, step, rows))
        expected = [with_rows(cache, new, position) for cache, new in zip(caches, (k, v), strict=True)]
        *caches, got = run(load(base.with_suffix(".pte")), q, k, v, *caches)
        attention_within(got, floats(base.with_suffix(".golden.bin"), q.shape), seq.kv_f16, base.name)
        np.testing.assert_array_equal(caches, expected)
        position += rows


@pytest.mark.parametrize("seq", named(sdpa.DYNAMIC_REPLAY_SEQS, lambda seq: seq.name))
@pytest.mark.parametrize("kind", ["dyn", "incache"])
def test_decode_at_a_live_position(kind: str, seq: Any) -> None:
    """One graph, token after token, with the caches given every time or kept in the graph."""
    export = sdpa.export_dynamic_decode if kind == "dyn" else sdpa.export_incache_decode
    folder = generated(f"sdpa_{kind}.{seq.name}", of_one(seq, export, "DYNAMIC_REPLAY_SEQS"))
    executor = load(folder / f"sdpa_{kind}_{seq.name}.pte")
    for _ in range(2):  # the second time over what the first left
        caches = [np.zeros((1, seq.cmax, seq.hkv, seq.d), np.float32)] * 2
        for step in range(sdpa.DYN_DECODE_STEPS):
            q, k, v = (given.numpy() for given in sdpa._step_inputs(seq, step, 1))
            given = (q, k, v, *caches) if kind == "dyn" else (q, k, v)
            *caches, got = run(executor, *given, np.array([step]))
            golden = floats(folder / f"sdpa_{kind}_{seq.name}_step{step}.golden.bin", q.shape)
            attention_within(got, golden, seq.kv_f16, f"{kind} {seq.name} step {step}")


def test_a_full_cache_is_an_error_with_the_numbers_and_then_the_program_goes_on() -> None:
    seq = sdpa.DYNAMIC_REPLAY_SEQS[0]
    folder = generated(f"sdpa_incache.{seq.name}", of_one(seq, sdpa.export_incache_decode, "DYNAMIC_REPLAY_SEQS"))
    executor = load(folder / f"sdpa_incache_{seq.name}.pte")
    given = [each.numpy() for each in sdpa._step_inputs(seq, 0, 1)]
    before = run(executor, *given, np.array([0]))[0]
    with pytest.raises(ShapeError, match="position 16 and 1 new rows need 17 rows, the cache holds 16"):
        run(executor, *given, np.array([16]))
    with pytest.raises(ShapeError, match="position -1"):
        run(executor, *given, np.array([-1]))
    np.testing.assert_array_equal(run(executor, *given, np.array([0]))[0], before)


def recorded_inputs(pte: Path, bounds: list[tuple[int, ...]], rows: int) -> list[np.ndarray]:
    """What a fixture takes at that many rows: queries, keys, values and both caches, after the input of a linear."""
    shapes = [(rows, *bound[1:]) for bound in bounds[:-5]]
    shapes += [(1, rows, *bound[2:]) for bound in bounds[-5:-2]] + bounds[-2:]
    parts = ("x", "q", "k", "v", "kc", "vc")[-len(shapes) :]
    return [floats(pte.with_suffix(f".S{rows}.{part}.bin"), shape) for part, shape in zip(parts, shapes, strict=True)]


@pytest.mark.parametrize(
    "family",
    [
        "dyn_sdpa",
        "combined_routes",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("dyn_sdpa_wide", "static_sdpa")),
    ],
)
def test_dynamic_sdpa(family: str) -> None:
    """Case J of the dynamic-shape oracle, up, down and up again on one graph, alone and after a 4-bit linear."""
    for name, fixture in dynamic_shape_files([family]).items():
        executor = load(fixture.pte)
        bounds = [value.max_shape for value in executor.graph.inputs]
        sizes = sorted(int(path.name.split(".")[1][1:]) for path in fixture.pte.parent.glob(f"{name}.S*.golden.bin"))
        assert sizes
        for rows in [*sizes, *reversed(sizes), *sizes[1:]]:
            given = recorded_inputs(fixture.pte, bounds, rows)
            *held, got = run(executor, *given)
            golden = floats(fixture.pte.with_suffix(f".S{rows}.golden.bin"), given[-5].shape)
            attention_within(got, golden, False, f"{name} at {rows}")
            for after, before, new in zip(held, given[-2:], given[-4:-2], strict=True):
                np.testing.assert_array_equal(after, with_rows(before, new, 0))


@pytest.mark.slow
def test_dynamic_sdpa_at_the_geometries_of_real_models() -> None:
    """The rest of case J: a position that is a size, a cache that is primed first, geometries with no special route."""
    for name, fixture in dynamic_shape_files(["dyn_sdpa_k16"]).items():
        executor = load(fixture.pte)
        bounds = [value.max_shape for value in executor.graph.inputs]
        if name == "sdpa_k16_bad_cache_heads":
            with pytest.raises(ShapeError, match="do not fit a cache"):
                run(executor, *(np.zeros(bound, np.float32) for bound in bounds))
            continue
        runs = [path.name.removesuffix("golden.bin") for path in fixture.pte.parent.glob(f"{name}.*.golden.bin")]
        for base in sorted(runs, key=lambda base: (".S" in base, "prime" in base)):
            parts = {part: np.fromfile(fixture.pte.parent / f"{base}{part}.bin", "<f4") for part in "qkv"}
            control = np.fromfile(fixture.pte.parent / f"{base}control.bin", "<f4")
            rows = parts["q"].size // int(np.prod(bounds[0][2:]))
            given = [parts[part].reshape(1, rows, *bound[2:]) for part, bound in zip("qkv", bounds[:3], strict=True)]
            (got,) = run(executor, *given, control.reshape(1, -1))
            golden = floats(fixture.pte.parent / f"{base}golden.bin", got.shape)
            attention_within(got, golden, "qwen3" in name, base)


@pytest.mark.parametrize(("module", "kind"), [(rope, "rope"), (rope_hf, "rope_hf")], ids=["rope", "rope_hf"])
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rope(module: Any, kind: str, number: int) -> None:
    shape = module.SHAPES[number]
    export = getattr(module, f"export_{kind}_model")
    folder = generated(
        f"{kind}.{shape.name}",
        lambda out: export(*(str(out / file) for file in ("model.pte", "q.bin", "k.bin")), shape.name),
    )
    given = [each.numpy() for each in module._inputs(shape)]
    for got, part, x in zip(run(load(folder / "model.pte"), *given), "qk", given, strict=False):
        assert_within(got, floats(folder / f"{part}.bin", x.shape), 1e-5, 1e-5, f"{kind} {shape.name} {part}")


def test_rope_in_halves_at_a_live_position() -> None:
    folder = generated("rope_hf.dynamic", lambda out: rope_hf.export_rope_hf_dynamic(str(out)))
    executor = load(folder / "rope_hf_dynamic.pte")
    given = [each.numpy() for each in rope_hf._dynamic_inputs()[:4]]
    for position in (*rope_hf.DYNAMIC_POSITIONS, *reversed(rope_hf.DYNAMIC_POSITIONS)):
        for got, part, x in zip(run(executor, *given, np.array([position])), ("xq", "xk"), given, strict=False):
            golden = floats(folder / f"rope_hf_dynamic.pos{position}.{part}.golden.bin", x.shape)
            assert_within(got, golden, 1e-5, 1e-5, f"position {position} {part}")


@pytest.mark.parametrize(
    ("position", "problem"),
    [(16, "position 16 and 1 rows need 17 rows of angles"), (-1, "position -1"), (1 << 32, "4294967296 does not fit")],
)
def test_a_position_without_angles_is_an_error(position: int, problem: str) -> None:
    """What ExecuTorch's native test has refused; 2 ** 32 would be 0 if it were cut to 32 bits."""
    folder = generated("rope_hf.dynamic", lambda out: rope_hf.export_rope_hf_dynamic(str(out)))
    executor = load(folder / "rope_hf_dynamic.pte")
    given = [each.numpy() for each in rope_hf._dynamic_inputs()[:4]]
    with pytest.raises(ValueError, match=problem):
        run(executor, *given, np.array([position]))
    golden = floats(folder / "rope_hf_dynamic.pos0.xq.golden.bin", given[0].shape)
    assert_within(run(executor, *given, np.array([0]))[0], golden, 1e-5, 1e-5, f"after {position}")


@pytest.mark.slow
def test_rope_in_halves_with_live_rows() -> None:
    folder = generated("rope_hf.sequence", lambda out: rope_hf.export_rope_hf_dynamic_sequence(str(out)))
    executor = load(folder / "rope_hf_dynamic_sequence.pte")
    for rows, position in rope_hf.DYNAMIC_SEQUENCE_CASES:
        given = [each.numpy() for each in rope_hf._dynamic_inputs(rows)[:4]]
        for got, part, x in zip(run(executor, *given, np.array([position])), ("xq", "xk"), given, strict=False):
            golden = floats(folder / f"rope_hf_dynamic_sequence.S{rows}.pos{position}.{part}.golden.bin", x.shape)
            assert_within(got, golden, 1e-5, 1e-5, f"{rows} rows at {position} {part}")
    with pytest.raises(ShapeError, match="position 14 and 5 rows need 19 rows of angles, the tables hold 16"):
        run(executor, *(each.numpy() for each in rope_hf._dynamic_inputs(5)[:4]), np.array([14]))


@pytest.mark.slow
def test_dynamic_rope() -> None:
    """Case L of the dynamic-shape oracle: two outputs, driven by all four inputs."""
    ((name, fixture),) = dynamic_shape_files(["dyn_rope"]).items()
    executor = load(fixture.pte)
    for rows in (16, 8, 1, 8, 16):
        given = [each.numpy() for each in rope._inputs(rope.Shape("dyn", 1, rows, 8, 2, 64))]
        for got, part, x in zip(run(executor, *given), ("gq", "gk"), given, strict=False):
            golden = floats(fixture.pte.with_suffix(f".S{rows}.{part}.bin"), x.shape)
            assert_within(got, golden, 1e-3, 0.0, f"{name} at {rows} {part}")


def scattered(executor: Executor, shape: tuple[int, ...], cache: np.ndarray, position: int) -> np.ndarray:
    """The cache after an update with rows of that shape, checked."""
    rows = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(cache.dtype)
    after = run(executor, rows, cache)[0]
    np.testing.assert_array_equal(after, with_rows(cache, rows, position))
    return after


@pytest.mark.parametrize("case", update_cache._NATIVE_CASES, ids=lambda case: case[0])
def test_update_cache(case: Any) -> None:
    folder = generated("update_cache.cases", lambda out: update_cache.export_update_cache_cases(str(out)))
    name, rows, heads, size, capacity, position = case
    cache = -np.arange(capacity * heads * size, dtype=np.float32).reshape(1, capacity, heads, size)
    scattered(load(folder / f"{name}.pte"), (1, rows, heads, size), cache, position)


@pytest.mark.slow
@pytest.mark.parametrize("seq", named(update_cache._REPLAY_SEQS, lambda seq: seq[0]))
def test_update_cache_replay(seq: Any) -> None:
    def write(out: Path) -> None:
        with mock.patch.object(update_cache, "_REPLAY_SEQS", [seq]):
            update_cache.export_update_cache_replay(str(out))

    name, heads, size, lengths = seq
    folder = generated(f"update_cache.{name}", write)
    cache = np.zeros((1, sum(lengths), heads, size), np.float32)
    position = 0
    for step, rows in enumerate(lengths):
        executor = load(folder / f"{name}_step{step}_S{rows}_pos{position}.pte")
        cache = scattered(executor, (1, rows, heads, size), cache, position)
        position += rows


@pytest.mark.parametrize("case", update_cache._NEGATIVE_CASES, ids=lambda case: case[0])
def test_update_cache_serves_what_the_other_backend_refuses(case: Any) -> None:
    folder = generated("update_cache.negative", lambda out: update_cache.export_update_cache_negative(str(out)))
    name, value_shape, cache_shape, dtype = case
    cache = np.random.default_rng(1).standard_normal(cache_shape).astype(str(dtype).removeprefix("torch."))
    scattered(load(folder / f"{name}.pte"), value_shape, cache, 0)
