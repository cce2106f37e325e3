"""From a torch module to the bytes of a `.pte`, and a disk cache of the bytes that parallel test workers can share."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import inspect
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import liveshape

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "exports"
ANEW = os.environ.get("LIVESHAPE_EXPORT") == "anew"
_checked: set[Path] = set()  # by this process


@dataclass(frozen=True)
class MethodSource:
    """What one method of a `.pte` is exported from; `args` are at the upper bound."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    dynamic_shapes: Any = None


def lower(
    module: torch.nn.Module, args: tuple[Any, ...], dynamic_shapes: Any = None, **partitioner_options: Any
) -> bytes:
    """Export at the upper bound, delegate what VulkanPartitioner takes, and return the file.

    >>> lower(torch.nn.ReLU(), (torch.randn(43, 8),), {"input": {0: torch.export.Dim("s", max=43)}})[4:8]
    b'ET12'
    """
    return lower_methods({"forward": MethodSource(module, args, dynamic_shapes)}, **partitioner_options)


def lower_methods(
    methods: Mapping[str, MethodSource],
    constant_methods: dict[str, Any] | None = None,
    delegate: bool = True,
    rare: bool = False,
    **partitioner_options: Any,
) -> bytes:
    """One file with several methods; `constant_methods` become plans that only return a value.

    Operators outside of torch's core set are an error of the exporter unless `rare`.
    """
    with quiet():
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
        from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
        from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
    with quiet(), quick():
        exported = {
            name: torch.export.export(source.module.eval(), source.args, dynamic_shapes=source.dynamic_shapes)
            for name, source in methods.items()
        }
        edge = to_edge_transform_and_lower(
            exported,
            partitioner={name: [VulkanPartitioner(**partitioner_options)] for name in exported} if delegate else None,
            constant_methods=constant_methods,
            compile_config=EdgeCompileConfig(_check_ir_validity=False) if rare else None,
        )
        # Sizes that come from the data have no hint; the declared range gives their bound.
        config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
        return bytes(edge.to_executorch(config).buffer)


@contextmanager
def quick() -> Iterator[None]:
    """Leave out the two searches that make up most of a small export; what comes out is the same, byte for byte."""
    from torch._export import utils

    remember_patterns()
    # torch walks its whole operator registry some 200 times per export; once is enough while no operator is added.
    materialize = utils._materialize_cpp_cia_ops
    materialize()
    utils._materialize_cpp_cia_ops = lambda: None
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = materialize


@functools.cache
def remember_patterns() -> None:
    """Build each fusion pattern of the partitioner once per process instead of twice per delegate."""
    from executorch.backends.vulkan.patterns import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None:
            entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's progress reports out of the test output: it writes to the root logger at INFO."""
    root = logging.getLogger()
    previous_level, previous_disable = root.level, logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous_disable)
        root.setLevel(previous_level)


def cached(name: str, source_key: object, make: Callable[[], bytes], suffix: str = ".pte") -> Path:
    """The path of a file that holds `make()`; made again when its name, its source or an exporter version changed.

    Under `LIVESHAPE_EXPORT=anew` what is there already is made once more, and must be the same.
    """
    path = cached_path(name, source_key, suffix)
    if ANEW and path.exists() and path not in _checked:
        _checked.add(path)
        assert make() == path.read_bytes(), f"{path.name} is not what the exporter writes today"
    if not path.exists():
        with only_one(path.name):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_once(path, make())
    return path


def cached_path(name: str, source_key: object, suffix: str = ".pte") -> Path:
    digest = hashlib.sha256("\0".join((name, source_text(source_key), *exporter_versions())).encode()).hexdigest()
    return CACHE / f"{name.replace('/', '.')}-{digest[:16]}{suffix}"


def write_once(path: Path, content: bytes) -> None:
    """Give `path` its content in one step: a reader in another process sees all of it or no file."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Let one process at a time make a thing; the others wait and find it made. The lock dies with its process."""
    locks = CACHE / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with open(locks / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def exporter_versions() -> tuple[str, ...]:
    recipe = "".join(inspect.getsource(step) for step in (lower, lower_methods))
    return (recipe, *(f"{package} {version(package)}" for package in ("torch", "executorch", "torchao")))


@functools.cache
def exporter_sources() -> tuple[str, ...]:
    """The text of all that `liveshape export` lowers a module with: what it writes may change where that does."""
    folder = Path(liveshape.__file__).parent / "export" / "module"
    return tuple(path.read_text() for path in sorted(folder.glob("*.py")))


def source_text(key: object) -> str:
    """The text that decides what an export contains: a string as it is, code by its source, a tuple by its parts."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple):
        return "\n".join(source_text(part) for part in key)
    return inspect.getsource(key)  # type: ignore[arg-type]
