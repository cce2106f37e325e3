"""4-bit layers with what comes before and after them in one dispatch: the bytes of the operators, at every size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.graph import Graph, Limits
from liveshape.lower.fusion import fuse
from tests.support.chains import Chain, executor_of

ROWS = 70
SIZES = (ROWS, 1, 2, 7, 16, 17, 33, 64, 3, ROWS - 1, 1)


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.name.removeprefix("liveshape.") for node in graph.nodes)


class Layers:
    """A chain of layers of one width after another; `weights` are "4", "minima" (of their groups) or "8" bits."""

    def __init__(self, dtype: str = "float32", group: int = 4, weights: str = "4") -> None:
        self.chain = Chain()
        self.group = group
        self.dtype = dtype
        self.weights = weights
        self.random = np.random.default_rng(3)

    def layer(self, x: Any, columns: int, bias: bool = False, weights: str = "", group: int = 0) -> Any:
        depth, group, weights = x.max_shape[-1], group or self.group, weights or self.weights
        shape = (columns, depth // group, group) if weights == "8" else (columns, depth // 2)
        weight = self.chain.constant(self.random.integers(0, 256, shape, np.uint8))
        rows = (depth // group, 2) if weights == "minima" else (depth // group,)
        scales = self.chain.constant((self.random.random((*rows, columns)) / depth).astype(self.dtype))
        offset = self.chain.constant(self.random.standard_normal(columns).astype(self.dtype)) if bias else None
        out = self.chain.tensor((*x.max_shape[:-1], columns), self.dtype)
        return self.chain.node("et_vk.linear_q4gsw.default", x, weight, scales, group, offset, out)

    def view(self, x: Any, sizes: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        return self.chain.node("aten.view_copy.default", x, sizes, self.chain.tensor(shape, self.dtype))

    def norm(self, x: Any) -> Any:
        weight = self.chain.constant(self.random.uniform(0.5, 1.5, x.max_shape[-1:]).astype(self.dtype))
        return self.chain.node("et_vk.rms_norm.default", x, weight, 1e-5, self.chain.tensor(x.max_shape, self.dtype))

    def gated(self, x: Any, columns: int, bias: bool = False) -> Any:
        gate = self.layer(x, columns, bias)
        sigmoid = self.chain.node("aten.sigmoid.default", gate, self.chain.tensor(gate.max_shape, self.dtype))
        silu = self.chain.node("aten.mul.Tensor", gate, sigmoid, self.chain.tensor(gate.max_shape, self.dtype))
        up = self.layer(x, columns, bias)
        return self.chain.node("aten.mul.Tensor", silu, up, self.chain.tensor(gate.max_shape, self.dtype))

    def add(self, a: Any, b: Any, alpha: int = 1) -> Any:
        return self.chain.node("aten.add.Tensor", a, b, alpha, self.chain.tensor(a.max_shape, self.dtype))


KEPT = 100


class Attention(NamedTuple):
    """QKV with rotary embedding, by tables of all positions or of the live rows."""

    positions: bool = True
    heads: tuple[int, int] = (4, 2)
    size: int = 8
    depth: int = 24
    bias: bool = False
    normed: bool = False
    partial: int = 0  # elements of a head that are not rotated
    dtype: str = "float32"
    weights: str = "4"
    values: str = ""  # the weights of the values, where they are others
    value_group: int = 0


def attention(case: Attention) -> tuple[Layers, list[Any]]:
    """Attention of x with its caches."""
    made = Layers(case.dtype, weights=case.weights)
    chain = made.chain
    x = chain.input((1, ROWS, case.depth), case.dtype)
    position = chain.scalar(given=True)
    width = case.size // (1 if case.positions else 2) - case.partial
    if case.positions:
        tables = [chain.constant(made.random.standard_normal((KEPT, width)).astype(case.dtype)) for _ in range(2)]
    else:
        tables = [chain.input((ROWS, width), case.dtype) for _ in range(2)]
    length = chain.node("sym_size.int", x, 1, chain.scalar())
    source = made.norm(x) if case.normed else x
    heads = []
    for count, own in zip((*case.heads, case.heads[1]), ((), (), (case.values, case.value_group)), strict=True):
        product = made.layer(source, count * case.size, case.bias, *own)
        heads.append(made.view(product, (1, length, count, case.size), (1, ROWS, count, case.size)))
    q, k, v = heads
    rotated = tuple(chain.tensor(each.max_shape, case.dtype) for each in (q, k))
    if case.positions:
        chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, position, rotated)
    else:
        chain.node("et_vk.apply_rotary_emb.default", q, k, *tables, rotated)
    caches = [chain.constant(np.zeros((1, KEPT, *v.max_shape[2:]), case.dtype)) for _ in range(2)]
    rest = position, length, None, 0.0, True, None, chain.tensor(q.max_shape, case.dtype)
    out = chain.node("sdpa_with_kv_cache.default", *rotated, v, *caches, *rest)
    return made, [out, *caches]


def same_bytes(
    graph: Graph,
    fused: Graph,
    given: Any,
    sizes: Any = SIZES,
    many: bool = False,
    *,
    normed: bool = False,
    cached: bool = False,
) -> None:
    """Both graphs give equal bytes at all sizes, `given(size)` being what they are called with.

    With `many` threads in a workgroup, as the device itself may not want them, views are copied, too. The RMSNorm of
    one row scales the products of its layer, not the row, so that where it is `normed` they agree to the rounding of
    floats; and so does what later calls take from a cache.
    """
    device = open_device()
    if many:
        device = open_device(limits=replace(device.limits, max_invocations=256, max_cooperating_threads=256))
    executors = executor_of(graph, device, aliasing=not many), executor_of(fused, device, aliasing=not many)
    rounded = False
    for size in sizes:
        rounded = normed and (size == 1 or (rounded and cached))
        results = []
        for executor in executors:
            executor.poison()
            results.append(executor.execute(given(size)))
        for one, other in zip(*results, strict=True):
            assert one.shape == other.shape
            if rounded:
                np.testing.assert_allclose(other, one, rtol=0, atol=2e-6 * np.abs(one).max(), err_msg=f"at {size}")
            else:
                assert one.tobytes() == other.tobytes(), f"at {size}"


LARGE = {"deep", "normed_values_of_bytes", "odd", "rows", "three"}


def in_turn(cases: dict[str, Any]) -> list[Any]:
    """Cases with few threads in a workgroup and with many in turn; three of four wait for `make test-all`, as
    the largest do."""
    marks = [
        pytest.mark.slow if place % 4 != place // 4 % 2 or name in LARGE else () for place, name in enumerate(cases)
    ]
    return [pytest.param(case, place % 2 == 1, marks=marks[place]) for place, case in enumerate(cases.values())]


class Sum(NamedTuple):
    """A layer and what its result is added to."""

    depth: int = 24
    width: int = 36
    bias: bool = False
    viewed: bool = False
    swapped: bool = False
    alpha: int = 1
    dtype: str = "float32"
    weights: str = "4"


SUMS = {
    "minima": Sum(weights="minima", depth=512, width=26),
    "bytes": Sum(weights="8", bias=True),
    "plain": Sum(),
    "biased": Sum(bias=True, swapped=True),
    "viewed": Sum(viewed=True),
    "odd": Sum(depth=20, width=13),
    "deep": Sum(depth=512, width=30, bias=True, viewed=True),
}


def added(case: Sum) -> tuple[Layers, Any]:
    """x and y, and y + layer(x)."""
    made = Layers(case.dtype, weights=case.weights)
    chain = made.chain
    x, y = (chain.input((1, ROWS, last), case.dtype) for last in (case.depth, case.width))
    product = made.layer(x, case.width, case.bias)
    if case.viewed:
        length = chain.node("sym_size.int", x, 1, chain.scalar())
        product = made.view(product, (1, length, case.width), product.max_shape)
    return made, made.add(*((product, y) if case.swapped else (y, product)), case.alpha)


@pytest.mark.parametrize(("case", "many"), in_turn(SUMS), ids=SUMS)
def test_a_residual_add_is_fused_into_the_epilogue(case: Sum, many: bool) -> None:
    (plain, total), (other, joined) = added(case), added(case)
    graph, fused = plain.chain.graph(total), fuse(other.chain.graph(joined))
    assert operators(fused) == Counter({"residual_linear_q4gsw": 1, "sym_size.int": int(case.viewed)}) - Counter()

    def given(size: int) -> list[Any]:
        random = np.random.default_rng(size)
        return [random.standard_normal((1, size, last)).astype(np.float32) for last in (case.depth, case.width)]

    same_bytes(graph, fused, given, many=many)
    same_bytes(graph, fused, lambda size: [given(size)[0], given(1)[1]], (7, 1, 20))
    same_bytes(graph, fused, lambda size: [given(1)[0], given(size)[1]], (7, 1, 20))


@pytest.mark.parametrize("case", [Sum(alpha=2), Sum(dtype="float16")], ids=["alpha", "halves"])
def test_other_adds_are_not_fused(case: Sum) -> None:
    made, total = added(case)
    assert len(fuse(made.chain.graph(total)).nodes) == 2


def test_an_add_is_not_fused_where_something_else_uses_a_part() -> None:
    made, total = added(Sum())
    product = made.chain.nodes[0].args[-1]
    assert len(fuse(made.chain.graph(total, product)).nodes) == 2, "the caller wants the product"
    made, total = added(Sum())
    again = made.add(made.chain.nodes[0].args[-1], made.chain.inputs[1])
    assert operators(fuse(made.chain.graph(total, again)))["residual_linear_q4gsw"] == 0, "two sums want it"
    made = Layers()
    x = made.chain.input((1, ROWS, 24))
    product = made.layer(x, 24)
    twice = made.add(product, product)
    assert len(fuse(made.chain.graph(twice)).nodes) == 2, "both are the product"


def curve(made: Layers, name: str, *values: Any) -> Any:
    chain, shape = made.chain, values[0].max_shape
    rest = {"aten.gelu.default": ("tanh",), "aten.add.Tensor": (1,)}.get(name, ())
    return chain.node(name, *values, *rest, chain.tensor(shape))


GATES = {
    "gelu": lambda made, a, b: curve(made, "aten.mul.Tensor", curve(made, "aten.gelu.default", a), b),
    "the second": lambda made, a, b: curve(made, "aten.mul.Tensor", a, curve(made, "aten.tanh.default", b)),
    "of both": lambda made, a, b: curve(
        made, "aten.add.Tensor", curve(made, "aten.square.default", b), curve(made, "aten.maximum.default", a, b)
    ),
}


@pytest.mark.parametrize(("gate", "many"), in_turn(GATES), ids=GATES)
def test_any_expression_of_two_layers_is_their_epilogue(gate: Any, many: bool) -> None:
    def unit() -> tuple[Layers, Any]:
        made = Layers()
        x = made.chain.input((1, ROWS, 24))
        first, second = made.layer(x, 13, True), made.layer(x, 13, True)
        return made, gate(made, first, second)

    (plain, out), (other, joined) = unit(), unit()
    fused = fuse(other.chain.graph(joined))
    assert operators(fused) == Counter({"gated_linear_q4gsw": 1})
    same_bytes(
        plain.chain.graph(out),
        fused,
        lambda size: [np.random.default_rng(size).standard_normal((1, size, 24)).astype(np.float32)],
        many=many,
    )


def test_an_add_is_not_fused_across_a_write_to_its_input() -> None:
    made = Layers()
    x, y, z = (made.chain.input((1, ROWS, 24)) for _ in range(3))
    kept = made.chain.tensor((1, ROWS, 24))
    made.chain.node("liveshape.move", x, kept)
    product = made.layer(kept, 24)
    made.chain.node("liveshape.move", z, kept)
    total = made.add(y, product)
    assert operators(fuse(made.chain.graph(total, kept)))["residual_linear_q4gsw"] == 0


def test_an_add_is_not_fused_above_the_limit_of_bindings() -> None:
    for limits in (Limits(max_bindings=5), Limits(max_binding_bytes=512)):
        made, total = added(Sum())
        assert len(fuse(made.chain.graph(total), limits).nodes) == 2


class Normed(NamedTuple):
    """A norm and the layers of it."""

    layers: str
    depth: int = 24
    width: int = 36
    bias: bool = False
    dtype: str = "float32"
    weights: str = "4"
    group: int = 4


NORMS = {
    "minima": Normed("gated", depth=256, weights="minima", group=32),
    "bytes": Normed("gated", depth=256, weights="8", group=32),
    "three_minima": Normed("three", width=6, weights="minima"),
    "three_bytes": Normed("three", width=12, weights="8"),
    "linear": Normed("linear"),
    "three": Normed("three", width=6),
    "gated": Normed("gated"),
    "biased": Normed("linear", width=13, bias=True),
    "three_biased": Normed("three", width=12, bias=True),
    "deep": Normed("gated", depth=1024, width=30),
    "wide": Normed("linear", depth=2560, width=13),
}


def normed(case: Normed) -> tuple[Layers, list[Any]]:
    """The layers of a norm of x."""
    made = Layers(case.dtype, case.group, case.weights)
    norm = made.norm(made.chain.input((1, ROWS, case.depth), case.dtype))
    if case.layers == "gated":
        return made, [made.gated(norm, case.width, case.bias)]
    count = 3 if case.layers == "three" else 1
    return made, [made.layer(norm, case.width * (index + 1), case.bias) for index in range(count)]


@pytest.mark.parametrize(("case", "many"), in_turn(NORMS), ids=NORMS)
def test_an_rms_norm_is_fused_into_its_linears(case: Normed, many: bool) -> None:
    (plain, results), (other, joined) = normed(case), normed(case)
    fused = fuse(other.chain.graph(*joined))
    name = {"linear": "", "three": "qkv_", "gated": "gated_"}[case.layers]
    assert operators(fused) == Counter({f"rms_norm_{name}linear_q4gsw": 1})

    def given(size: int) -> list[Any]:
        return [np.random.default_rng(size).standard_normal((1, size, case.depth)).astype(np.float32)]

    same_bytes(plain.chain.graph(*results), fused, given, (*SIZES, 0, 1), many, normed=True)


@pytest.mark.parametrize(
    "case",
    [
        Normed("linear", depth=20),
        Normed("linear", depth=2816 + 8),
        Normed("gated", dtype="float16"),
    ],
    ids=["odd", "wide", "halves"],
)
def test_other_norms_are_not_fused(case: Normed) -> None:
    made, results = normed(case)
    assert operators(fuse(made.chain.graph(*results)))["et_vk.rms_norm.default"] == 1


def test_an_rms_norm_is_not_fused_where_threads_are_few() -> None:
    made, results = normed(NORMS["gated"])
    assert operators(fuse(made.chain.graph(*results), Limits(max_cooperating_threads=8)))["et_vk.rms_norm.default"] == 1


def test_an_rms_norm_is_not_recomputed_for_many_columns() -> None:
    made, results = normed(Normed("linear", depth=2048, width=20000))
    assert operators(fuse(made.chain.graph(*results)))["et_vk.rms_norm.default"] == 1


def test_an_rms_norm_with_another_consumer_is_not_fused() -> None:
    made, results = normed(NORMS["gated"])
    assert operators(fuse(made.chain.graph(*results, made.chain.nodes[0].args[-1])))["et_vk.rms_norm.default"] == 1


def test_an_rms_norm_is_not_fused_across_a_write_to_its_input() -> None:
    made = Layers()
    x, z = (made.chain.input((1, ROWS, 24)) for _ in range(2))
    kept = made.chain.tensor((1, ROWS, 24))
    made.chain.node("liveshape.move", x, kept)
    norm = made.norm(kept)
    made.chain.node("liveshape.move", z, kept)
    assert operators(fuse(made.chain.graph(made.layer(norm, 24), kept)))["et_vk.rms_norm.default"] == 1


ATTENTIONS = {
    "minima": Attention(weights="minima", bias=True),
    "bytes": Attention(weights="8", normed=True),
    "minima_of_rows": Attention(weights="minima", positions=False, normed=True),
    "bytes_of_rows": Attention(weights="8", positions=False),
    "positions": Attention(),
    "rows": Attention(positions=False, bias=True),
    "biased": Attention(bias=True, heads=(3, 1), size=6),
    "odd": Attention(positions=False, heads=(3, 3), size=10, depth=20),
    "deep": Attention(depth=512, heads=(2, 1), size=64),
    "normed": Attention(normed=True, depth=128),
    "normed_biased": Attention(normed=True, bias=True),
    "normed_rows": Attention(normed=True, positions=False),
    "values_of_bytes": Attention(weights="minima", values="8", value_group=2),
    "normed_values_of_bytes": Attention(weights="minima", values="8", value_group=8, normed=True, bias=True),
    "values_of_bytes_of_rows": Attention(values="8", positions=False, normed=True),
    "values_of_nibbles": Attention(weights="8", values="minima", bias=True, depth=512, heads=(2, 1), size=64),
}


@pytest.mark.parametrize(("case", "many"), in_turn(ATTENTIONS), ids=ATTENTIONS)
def test_rotary_embedding_in_the_epilogue_of_qkv(case: Attention, many: bool) -> None:
    (plain, results), (other, joined) = attention(case), attention(case)
    fused = fuse(other.chain.graph(*joined), Limits(max_bindings=9))
    name = "rms_norm_rotary_linear_q4gsw" if case.normed else "rotary_linear_q4gsw"
    assert operators(fused) == Counter({"sym_size.int": 1, name: 1, "custom_sdpa.default": 1})

    def given(size: int) -> list[Any]:
        random = np.random.default_rng(size)
        x = random.standard_normal((1, size, case.depth)).astype(np.float32)
        tables = [] if case.positions else [random.standard_normal((size, case.size // 2)) for _ in range(2)]
        return [x, int(random.integers(0, KEPT - size)), *(each.astype(np.float32) for each in tables)]

    same_bytes(plain.chain.graph(*results), fused, given, many=many, normed=case.normed, cached=True)


@pytest.mark.parametrize("positions", [True, False])
def test_a_position_beyond_the_cache_is_refused_as_before(positions: bool) -> None:
    made, results = attention(Attention(positions=positions))
    executor = executor_of(fuse(made.chain.graph(*results), Limits(max_bindings=9)), open_device())
    x, tables = np.ones((1, 2, 24), np.float32), [] if positions else [np.ones((2, 4), np.float32)] * 2
    with pytest.raises(ShapeError, match=f"position {KEPT - 1} and 2 "):
        executor.execute([x, KEPT - 1, *tables])
    assert executor.execute([x, KEPT - 2, *tables])[0].shape == (1, 2, 4, 8)
    if not positions:
        with pytest.raises(ShapeError, match=r"\(2, 4\) is needed"):
            executor.execute([x, 0, tables[0], np.ones((1, 4), np.float32)])


def test_rotary_embedding_is_not_fused_where_results_would_differ() -> None:
    for case in (Attention(partial=2), Attention(dtype="float16")):
        made, results = attention(case)
        assert operators(fuse(made.chain.graph(*results), Limits(max_bindings=9)))["rotary_linear_q4gsw"] == 0, case
    made, results = attention(Attention())
    assert operators(fuse(made.chain.graph(*results)))["rotary_to_cache"] == 1, "eight bindings are not enough"
    made, results = attention(Attention())
    keys = made.chain.nodes[3].args[-1]
    found = operators(fuse(made.chain.graph(*results, keys), Limits(max_bindings=9)))
    assert found["qkv_linear_q4gsw"] == found["rotary_to_cache"] == 1, "the caller wants the keys"
