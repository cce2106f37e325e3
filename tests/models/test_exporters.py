"""Files that ExecuTorch's own test exporters write with their goldens: order of dispatches, and single operators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.run.executor import Executor
from liveshape.runtime import Runtime
from tests.models.test_catalogue import assert_within, load, slowly
from tests.support.catalogue import generated
from tests.support.exporting import cached, lower, quick, quiet

TESTS = "executorch.backends.webgpu.test.ops"


def upstream(name: str) -> Any:
    with quiet():
        return import_module(f"{TESTS}.{name}")


def written(name: str, module: str, function: str) -> Path:
    """The folder that an exporter of ExecuTorch fills, made once."""

    def write(out: Path) -> None:
        with quiet(), quick():
            getattr(upstream(module), function)(str(out))

    return generated(name, write)


@pytest.mark.slow
def test_dispatches_run_in_order() -> None:
    """Chains up to 32 deep, in which every dispatch reads what the one before it wrote, in one compute pass."""
    folder = written("dispatch_order", "test_dispatch_order", "export_dispatch_order_cases")
    files = sorted(folder.glob("*.pte"))
    assert len(files) == 9
    for path in files:
        method = Runtime.get().load_program(path).load_method("forward")
        x = np.fromfile(path.with_suffix(".input.bin"), "<f4").reshape(method.inputs[0].bounds)
        golden = np.fromfile(path.with_suffix(".golden.bin"), "<f4")
        for _ in range(3):
            np.testing.assert_allclose(method.execute([x])[0].reshape(-1), golden, 1e-3, 1e-3, err_msg=path.name)


def test_index() -> None:
    folder = written("index", "index.test_index", "export_all_index_models")
    files = sorted(folder.glob("*.pte"))
    assert files
    for path in files:
        method = Runtime.get().load_program(path).load_method("forward")
        table = np.fromfile(path.with_suffix(".self.bin"), "<f4").reshape(method.inputs[0].bounds)
        rows = np.fromfile(path.with_suffix(".idx.bin"), "<i4").astype(method.inputs[1].dtype)
        golden = np.fromfile(path.with_suffix(".golden.bin"), "<f4")
        (got,) = method.execute([table, rows.reshape(method.inputs[1].bounds)])
        np.testing.assert_array_equal(got.reshape(-1), golden, err_msg=path.name)


def run(executor: Executor, inputs: list[np.ndarray], golden: np.ndarray, tolerance: tuple[float, float]) -> None:
    executor.poison()
    (got,) = executor.execute(inputs)
    assert_within(got, golden, *tolerance, executor.graph.name)


# Exporters that write one program, its golden and its inputs one after another. Each comes with what its module or its
# native test allows, absolute and relative; what only moves or decides is exact.


def written_singles() -> Iterator[tuple[str, tuple[float, float], Callable[..., None]]]:
    """The name, the tolerance and the exporter of (pte, golden, input) of every program."""
    yield "softmax", (1e-6, 1e-5), upstream("test_softmax").export_softmax_model
    yield "log_softmax", (1e-5, 1.3e-6), upstream("test_log_softmax").export_log_softmax_model
    yield "logical_not", (0, 0), upstream("test_logical_not").export_logical_not_model
    yield "bmm", (1e-4, 1e-3), upstream("test_bmm").export_bmm_model
    yield "sub_1024", (1e-5, 1.3e-6), upstream("test_sub").export_sub_model
    linear = upstream("test_linear")
    for name in linear.CONFIGS:
        yield f"linear_{name}", (1e-3, 1e-3), lambda *paths, name=name: linear.export_linear_model(*paths, name)
    expand = upstream("test_expand_copy")
    for name, (source, target) in expand.CONFIGS.items():
        export = lambda *paths, shapes=(target, source): expand.export_expand_copy_model(*shapes, *paths)
        yield f"expand_{name}", (0, 0), export
    reduce = upstream("test_reduce")
    for operator in ("sum", "mean"):
        for name, *config in reduce.CONFIGS:
            export = lambda *paths, config=(operator, *config): reduce.export_reduce_model(*config, *paths)
            yield f"{operator}_{name}", (5e-4, 1e-3), export
    gather = upstream("test_gather")
    for name in gather.CONFIGS:
        yield f"gather_{name}", (0, 0), lambda pte, golden, _, name=name: gather.export_gather_model(name, pte, golden)
    prepack = upstream("test_prepack")
    for kind in ("", "_two_const", "_tied_const"):
        export = getattr(prepack, f"export_prepack{kind}_model")
        yield f"prepack{kind}", (1e-3, 1e-3), lambda pte, golden, _, export=export: export(pte, golden)


SINGLES = {name: (tolerance, export) for name, tolerance, export in written_singles()}
QUICK = {"softmax", "log_softmax", "logical_not", "bmm", "linear_scalar_k", "expand_rank_increase"}
QUICK |= {"sum_middle_dim_drop", "gather_rank3_neg", "prepack", "prepack_two_const", "prepack_tied_const"}


@pytest.mark.parametrize("name", slowly(list(SINGLES), QUICK))
def test_single_operator(name: str) -> None:
    tolerance, export = SINGLES[name]
    parts = ("model.pte", "golden.bin", "input.bin")
    folder = generated(f"single.{name}", lambda out: export(*(str(out / part) for part in parts)))
    executor = load(folder / "model.pte")
    shapes = [value.max_shape for value in executor.graph.inputs]
    if name.startswith("gather"):
        gather = upstream("test_gather")
        inputs = [each.numpy() for each in gather._det_inputs(*gather.CONFIGS[name.removeprefix("gather_")])]
    elif name.startswith("prepack"):
        inputs = [each.numpy() for each in upstream("test_prepack")._inputs()]
    else:
        data = np.fromfile(folder / "input.bin", "<f4")
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
        inputs = [piece.reshape(shape) for piece, shape in zip(np.split(data, ends[:-1]), shapes, strict=True)]
    (output,) = executor.graph.outputs
    golden = np.fromfile(folder / "golden.bin", "?" if output.dtype == "bool" else "<f4")
    run(executor, inputs, golden.reshape(output.max_shape), tolerance)


# The other programs of their unit tests, against the same module in float64: a config as a module and its inputs.
Form = Callable[[Any, Any], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]
FORMS: dict[str, tuple[tuple[float, float], Form]] = {
    "bmm": ((1e-4, 1e-3), lambda of, config: (of.BmmModule(), of._det_inputs(*config))),
    "dim_order": ((0, 0), lambda of, shape: (of.CloneDimOrderModule(), (of._det_input(shape),))),
    "div": ((5e-4, 1e-3), lambda of, config: (of.DivModule(), of._det_inputs(*config))),
    "embedding": (
        (0, 0),
        lambda of, config: (of.EmbeddingModule(of._det_weight(*config[:2])), (of._det_indices(*config[::2]),)),
    ),
    "fill": ((0, 0), lambda of, config: (of._module(config[0], config[2]), (torch.zeros(config[1]),))),
    "logical_not": ((0, 0), lambda of, shape: (of.LogicalNotModule(0.0), (of._det_input(shape),))),
    "matmul": ((1e-4, 1e-3), lambda of, config: (of.MatmulModule(), of._det_inputs(*config))),
    "softmax": ((1e-6, 1e-5), lambda of, config: (of.SoftmaxModule(config[1]), (of._det_input(config[0]),))),
    "sub": ((1e-5, 1.3e-6), lambda of, config: (of.SubModule(), of._det_inputs(*config))),
    "where": ((0, 0), lambda of, config: (of.WhereModule(), of._det_inputs(*config))),
}


def double(given: torch.Tensor) -> torch.Tensor:
    return given.double() if given.is_floating_point() else given


def run_module(name: str, model: torch.nn.Module, given: tuple[torch.Tensor, ...], tol: tuple[float, float]) -> None:
    executor = load(cached(f"single_{name}", f"{type(model).__module__} {name}", lambda: lower(model, given)))
    expected = model(*given)
    golden = copy.deepcopy(model).double()(*map(double, given)).to(expected.dtype)
    run(executor, [each.numpy() for each in given], golden.detach().numpy(), tol)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_configs_of_a_unit_test(name: str) -> None:
    tolerance, form = FORMS[name]
    module = upstream(f"test_{name}")
    for case, config in module.CONFIGS.items():
        run_module(f"{name}_{case}", *form(module, config), tolerance)


@pytest.mark.slow
def test_comparisons_with_a_number() -> None:
    module = upstream("test_compare")
    for operator in module.SCALAR_OPS:
        for case, shape in module.SCALAR_SHAPES.items():
            model = module.ScalarCompareModule(operator, module.SCALAR)
            run_module(f"{operator}_{case}", model, (module._det_input(shape),), (0, 0))
