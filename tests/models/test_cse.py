"""What is computed once gives the very bytes of what the file computes several times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from liveshape.lower.cse import share_subexpressions
from liveshape.lower.fusion import fuse
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain

ROWS, DEPTH, WIDTH = 37, 64, 16
# A layer has an int8 dot product if its groups are whole vectors of nibbles, else its rows are fake-quantized.
ROUNDINGS = {32: "quantize_rows", 8: "fake_quantize_rows"}


def layers_of_one_input(group: int = 32, *, changed: bool = False, chain: Chain | None = None) -> Chain:
    """Three layers of 8-bit rows; with `changed`, x is another before the third of them."""
    chain = chain or Chain()
    random = np.random.default_rng(3)
    x = chain.input((1, ROWS, DEPTH))
    held = chain.node("aten.add.Tensor", x, x, 1, chain.tensor(x.max_shape))
    for number in range(3):
        if changed and number == 2:
            chain.node("liveshape.move", x, held)
        found = chain.tensor((1, ROWS)), chain.tensor((1, ROWS), "int8")
        asked = "ASYMMETRIC", (1, 1, DEPTH), None, -128, 127, None, None, None, False
        chain.node("torchao.choose_qparams_affine.default", held, *asked, found)
        weight = chain.constant(random.integers(0, 256, (WIDTH, DEPTH // 2), np.uint8))
        sums = chain.constant(np.zeros((DEPTH // group, WIDTH), np.int32))
        scales = chain.constant((random.random((DEPTH // group, WIDTH)) / 8).astype(np.float32))
        out = chain.tensor((1, ROWS, WIDTH))
        chain.outputs.append(
            chain.node("et_vk.linear_dq8ca_q4gsw.default", held, *found, weight, sums, scales, group, None, out)
        )
    return chain


def assert_equal_bytes(graph: Graph, other: Graph) -> None:
    device = open_device()
    executors = [Executor(compile(each, device.limits), device) for each in (graph, other)]
    for size in (ROWS, 1, 2, 17, 5, ROWS - 1):
        x = np.random.default_rng(size).standard_normal((1, size, DEPTH)).astype(np.float32)
        results = []
        for executor in executors:
            executor.poison()
            results.append([array.tobytes() for array in executor.execute([x])])
        assert results[0] == results[1], f"at {size}"


@pytest.mark.parametrize(("group", "rounding"), ROUNDINGS.items(), ids=ROUNDINGS.values())
def test_rows_are_quantized_once_for_all_their_layers(group: int, rounding: str) -> None:
    plain, other = layers_of_one_input(group), layers_of_one_input(group)
    fused = fuse(share_subexpressions(other.graph(*other.outputs)))
    assert [node.name.split(".")[1] for node in fused.nodes] == [
        "add", "choose_qparams_affine", rounding, "qkv_linear_q4gsw",
    ]  # fmt: skip
    assert_equal_bytes(plain.graph(*plain.outputs), fused)


@pytest.mark.parametrize(("group", "rounding"), ROUNDINGS.items(), ids=ROUNDINGS.values())
def test_rows_that_changed_are_quantized_again(group: int, rounding: str) -> None:
    plain, other = (layers_of_one_input(group, changed=True) for _ in range(2))
    graph = share_subexpressions(other.graph(*other.outputs))
    found = Counter(node.name for node in graph.nodes)
    assert (found["torchao.choose_qparams_affine.default"], found[f"liveshape.{rounding}"]) == (2, 2)
    assert_equal_bytes(plain.graph(*plain.outputs), fuse(graph))


@pytest.mark.parametrize("state", [False, True], ids=["output", "state"])
def test_what_the_caller_or_the_next_call_wants_stays(state: bool) -> None:
    """A state is read before anything wrote it: it is what the call before left there."""
    chain = Chain()
    kept = chain.tensor((1, ROWS))
    if state:
        chain.outputs.append(chain.node("aten.add.Tensor", kept, kept, 1, chain.tensor((1, ROWS))))
    layers_of_one_input(chain=chain)
    asked = [node for node in chain.nodes if node.name == "torchao.choose_qparams_affine.default"]
    _, zero_points = asked[1].args[-1]
    given = asked[1].args[:-1]
    chain.nodes[asked[1].index] = replace(asked[1], args=(*given, (kept, zero_points)))
    scales = [node.args[-1][0] for node in chain.nodes if node.name == "torchao.choose_qparams_affine.default"]
    graph = share_subexpressions(chain.graph(*chain.outputs, *([] if state else [scales[1]])))
    assert Counter(node.name for node in graph.nodes)["torchao.choose_qparams_affine.default"] == 2
