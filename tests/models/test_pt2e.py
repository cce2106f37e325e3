"""Models that PT2E quantized to eight bits, at live sizes below their bound, against the same model in eager torch.

Eager torch sums floats where we sum integers: on the edge between two steps it could fall to the other side, and then
by one step; of these numbers none does.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.run.executor import Executor
from tests.models.test_catalogue import load
from tests.support.exporting import cached, lower, quiet

with quiet():
    from executorch.backends.vulkan.quantizer import vulkan_quantizer as vulkan
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    importlib.import_module("executorch.backends.vulkan.custom_ops_lib")
    importlib.import_module("executorch.kernels.quantized")  # the names of what stays outside of a delegate

MAX = 6


class Classifier(nn.Module):
    """All kinds of convolution, a residual, and two linear layers of which one has no whole words of columns."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.spatial = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.mixing = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1)
        self.head = nn.Linear(4 * 7 * 7, 12)
        self.last = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.mixing(torch.relu(self.spatial(x)))
        x = torch.relu(self.up(x))
        return self.last(torch.relu(self.head(torch.flatten(x, 1))))


class Dense(nn.Module):
    """Convolutions alone, for images of any height."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, (3, 2), stride=(2, 1), padding=(2, 1))
        self.wide = nn.Conv2d(8, 6, 3, padding=2, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.wide(torch.relu(self.stem(x))))


class Smooth(nn.Module):
    """Convolutions without a relu after them: the quantizer takes only these when steps are chosen at run time."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=2)
        self.mixing = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.stem(x))
        x = torch.sigmoid(self.up(x + torch.tanh(self.mixing(x))))
        return self.head(x.mean((2, 3)))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(20, 12)
        self.down = nn.Linear(12, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Converted(nn.Module):
    """A converted model, which refuses to be asked whether it trains."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def train(self, mode: bool = True) -> Converted:
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def static() -> Any:
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    return xnnpack.XNNPACKQuantizer().set_global(config)


def dynamic() -> Any:
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    return xnnpack.XNNPACKQuantizer().set_global(config)


def weights_only() -> Any:
    return vulkan.VulkanQuantizer().set_global(vulkan.get_symmetric_quantization_config())


def quantized(model: type[nn.Module], quantizer: Callable[[], Any], example: torch.Tensor, axis: int) -> Converted:
    torch.manual_seed(len(model.__name__))
    live = ({axis: torch.export.Dim("S", min=1, max=example.shape[axis])},)
    with quiet():
        exported = torch.export.export(model().eval(), (example,), dynamic_shapes=live).module()
        prepared = prepare_pt2e(exported, quantizer())
        prepared(example)
        return Converted(convert_pt2e(prepared))


def exported(
    model: type[nn.Module], quantizer: Callable[[], Any], shape: tuple[int, ...], axis: int, **options: Any
) -> tuple[Converted, Executor]:
    generator = torch.Generator().manual_seed(1)
    example = torch.randn(shape, generator=generator)
    converted = quantized(model, quantizer, example, axis)
    live = ({axis: torch.export.Dim("S", min=1, max=shape[axis])},)
    source = (model, quantizer, quantized, exported, Converted, repr((shape, axis, options)))
    name = f"pt2e_{model.__name__.lower()}_{quantizer.__name__}{'_portable' if options else ''}"
    path: Path = cached(name, source, lambda: lower(converted, (example,), live, **options))
    return converted, load(path)


def operators(executor: Executor) -> Counter[str]:
    return Counter(node.name for node in executor.graph.nodes)


def compare(model: nn.Module, executor: Executor, shape: tuple[int, ...], axis: int) -> None:
    """Every live size, down and up on one graph: no number is a step away, so every integer on the way is torch's."""
    generator = torch.Generator().manual_seed(2)
    made = executor.device.counters.buffers, executor.device.counters.pipelines
    for size in [*range(shape[axis], 0, -1), *range(1, shape[axis] + 1)]:
        x = torch.randn(*shape[:axis], size, *shape[axis + 1 :], generator=generator)
        executor.poison()
        (got,) = executor.execute([x.numpy()])
        golden = model(x).detach().numpy()
        assert got.shape == golden.shape
        np.testing.assert_allclose(got, golden, 1e-6, 1e-6, err_msg=f"at {size}")
    assert made == (executor.device.counters.buffers, executor.device.counters.pipelines)


def float_activations(model: Converted) -> Converted:
    """As the exporter writes dynamic layers into a delegate: what remains of them is the weights of eight bits."""
    for node in model.inner.graph.nodes:
        if node.target == torch.ops.quantized_decomposed.dequantize_per_tensor.tensor:
            node.replace_all_uses_with(node.args[0].args[0])
    model.inner.recompile()
    return model


@pytest.mark.slow
def test_static_classifier() -> None:
    shape = (MAX, 3, 8, 8)
    model, executor = exported(Classifier, static, shape, 0)
    found = operators(executor)
    layers = ("q8ta_conv2d", "q8ta_conv2d_dw", "q8ta_conv2d_pw", "q8ta_conv2d_transposed", "q8ta_add")
    assert all(found[f"et_vk.{name}.default"] == 1 for name in layers), found
    assert found["et_vk.q8ta_linear.default"] == 2
    compare(model, executor, shape, 0)


@pytest.mark.slow
def test_static_images_of_any_height() -> None:
    shape = (1, 3, 11, 7)
    model, executor = exported(Dense, static, shape, 2)
    assert operators(executor)["et_vk.q8ta_conv2d.default"] == 2
    compare(model, executor, shape, 2)


def test_dynamic_images_outside_of_a_delegate() -> None:
    shape = (1, 3, 11, 7)
    model, executor = exported(Smooth, dynamic, shape, 2, delegate=False)
    found = operators(executor)
    assert found["quantized_decomposed::choose_qparams.Tensor_out"] == 4
    assert found["quantized_decomposed::dequantize_per_channel.out"] == 4
    compare(model, executor, shape, 2)


def test_dynamic_images_in_a_delegate() -> None:
    shape = (1, 3, 11, 7)
    model, executor = exported(Smooth, dynamic, shape, 2)
    assert operators(executor)["quantized_decomposed.dequantize_per_channel.default"] == 4
    compare(float_activations(model), executor, shape, 2)


def test_dynamic_layers_outside_of_a_delegate() -> None:
    shape = (MAX, 20)
    model, executor = exported(Layers, dynamic, shape, 0, delegate=False)
    found = operators(executor)
    assert found["quantized_decomposed::choose_qparams.Tensor_out"] == 2
    assert found["quantized_decomposed::quantize_per_tensor.Tensor_out"] == 2
    compare(model, executor, shape, 0)


def test_dynamic_layers_in_a_delegate() -> None:
    shape = (MAX, 20)
    model, executor = exported(Layers, dynamic, shape, 0)
    assert operators(executor)["quantized_decomposed.dequantize_per_channel.default"] == 2
    compare(float_activations(model), executor, shape, 0)


def test_weights_alone() -> None:
    shape = (MAX, 20)
    model, executor = exported(Layers, weights_only, shape, 0)
    assert operators(executor)["aten._weight_int8pack_mm.default"] == 2
    compare(model, executor, shape, 0)
