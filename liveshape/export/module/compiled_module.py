"""A torch module on a device, called as the module itself: its signature, torch tensors in and out, outputs as it nests
them. Weights are the module's own memory until they are uploaded: nothing is written to a disk.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.export.dynamic_shapes import Dim, _combine_args
from torch.utils import _pytree as pytree

from liveshape.errors import InputError, ShapeError
from liveshape.export.file.program_file import ProgramSpec, file_layout, write_program
from liveshape.export.module.torch_export import Step, lowered
from liveshape.export.module.traced_module import ModuleSource
from liveshape.export.weights.contents import Computed
from liveshape.export.weights.lazy_constants import as_stored
from liveshape.formats.signature import STATIC
from liveshape.metadata import TensorInfo
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import open_file
from liveshape.program.memory_use import Memory
from liveshape.program.method import Method
from liveshape.program.program import Program
from liveshape.run.arrays import as_torch

if TYPE_CHECKING:
    from liveshape.progress import Progress

_LOG = logging.getLogger("liveshape")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _Sizes:
    """The bound of every dimension of every argument, None where it is no tensor, and which dimensions have varied."""

    bounds: tuple[tuple[int, ...] | None, ...]
    varied: frozenset[tuple[int, int]] = frozenset()  # argument and dimension

    def grown(self, leaves: Sequence[Any]) -> _Sizes:
        """These, where the arguments of a call fit, else larger ones: a dimension that varies has a power of two.

        >>> met = _Sizes(((1, 7),)).grown([torch.zeros(1, 9)])
        >>> met.bounds, met is met.grown([torch.zeros(1, 16)]), met.grown([torch.zeros(1, 17)]).bounds
        (((1, 16),), True, ((1, 32),))
        """
        bounds, varied = list(self.bounds), {*self.varied}
        for place, (leaf, most) in enumerate(zip(leaves, self.bounds, strict=True)):
            if most is None or not isinstance(leaf, torch.Tensor) or leaf.dim() != len(most):
                continue  # the method says what is wrong
            sizes = list(most)
            for axis, size in enumerate(leaf.shape):
                fits = size <= most[axis] if (place, axis) in varied else size == most[axis]
                if not fits:
                    sizes[axis] = 1 << (max(size, most[axis]) - 1).bit_length()
                    varied.add((place, axis))
            bounds[place] = tuple(sizes)
        found = _Sizes(tuple(bounds), frozenset(varied))
        return self if found == self else found


@dataclass(frozen=True)
class _Built:
    """A program of the module, loaded."""

    spec: ProgramSpec
    program: Program
    method: Method
    taken: Any  # how arguments nest
    given: Any  # and outputs
    stateful: bool  # whether it changes buffers


class CompiledModule:
    """A compiled module: call it as the module.

    Example: `fast = liveshape.compile(module, (x,)); y = fast(x)`.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic_shapes: Any,
        target: CompileTarget,
        progress: Progress | None,
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"a torch.nn.Module is compiled, {type(module).__name__} was given")
        if module.training:
            raise InputError(
                "the module is in training mode, and what it computes in evaluation is compiled: call module.eval()"
            )
        self._module, self._target, self._progress = module, target, progress
        self._signature = inspect.signature(module.forward)
        self._lock = threading.RLock()
        self._grows, self._closed = dynamic_shapes is None, False
        self._named = [*kwargs]  # in the example, the others by position
        self._positional = [*self._signature.bind_partial(*args).arguments]
        leaves, _ = pytree.tree_flatten((args, kwargs))
        self._sizes = _Sizes(tuple(tuple(each.shape) if isinstance(each, torch.Tensor) else None for each in leaves))
        self._met = [getattr(each, "shape", None) for each in leaves]  # the sizes of the call before
        self._built = self._build(args, kwargs, dynamic_shapes)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """What the module gives for these arguments; tensors lie on the CPU.

        Example: `fast(tokens, attention_mask=mask)`.
        """
        given, named = self._as_in_the_example(args, kwargs)
        leaves, taken = pytree.tree_flatten((given, named))
        if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in leaves):
            raise InputError("an input requires grad, and no gradients are computed: call under torch.no_grad()")
        with self._lock:
            built = self._built
            if taken != built.taken:
                raise InputError(
                    f"the module was compiled for arguments that nest as {built.taken}, these nest as {taken}: compile "
                    "it with such arguments as the example"
                )
            if self._closed:
                raise InputError(f"{type(self._module).__name__}: the compiled module was closed; compile it again")
            shapes = [getattr(each, "shape", None) for each in leaves] if self._grows else self._met
            if shapes != self._met:
                sizes = self._sizes.grown(leaves)
                built = built if sizes is self._sizes else self._grow(sizes, leaves, taken)
                self._met = shapes
            outputs = built.method.execute(leaves)
            infos = built.method.outputs
        found = [
            as_torch(torch, each, info.dtype) if isinstance(each, np.ndarray) else each
            for each, info in zip(outputs, infos, strict=True)
        ]
        return pytree.tree_unflatten(found, built.given)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs: name, dtype, upper bounds, and the range of each dimension."""
        return self._built.method.inputs

    @property
    def memory(self) -> Memory:
        """The GPU memory of the module, in bytes."""
        return self._built.method.memory

    def save(self, path: str | Path) -> int:
        """Write it as a `.pte`, which `liveshape.load` takes, and return its size.

        Example: `fast.save("model.pte")`.
        """
        return write_program(self._built.spec, Path(path))

    def close(self) -> None:
        """Free its GPU memory; it cannot be called afterwards."""
        with self._lock:
            self._closed = True
            self._built.program.close()

    def __enter__(self) -> CompiledModule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CompiledModule({type(self._module).__name__}: {', '.join(map(str, self.inputs))})"

    # Arguments

    def _as_in_the_example(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments, by position where the example had them so, and by name where it named them."""
        if len(args) == len(self._positional) and [*kwargs] == self._named:
            return args, kwargs
        parameters = self._signature.parameters
        if any(each.kind in _VARIADIC for each in parameters.values()):
            return args, kwargs
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InputError(f"{type(self._module).__name__}.forward{self._signature}: {error}") from error
        taken = [*self._positional, *self._named]
        more = [name for name in given if name not in taken]
        if more:
            raise InputError(
                f"{', '.join(more)} was not among the arguments of the example ({', '.join(taken)}): compile the "
                "module with an example of all"
            )
        values = {name: given.get(name, parameters[name].default) for name in taken}
        return tuple(values[name] for name in self._positional), {name: values[name] for name in self._named}

    # Sizes

    def _grow(self, sizes: _Sizes, leaves: Sequence[Any], taken: Any) -> _Built:
        """The module once more, where dimensions that varied are dynamic."""
        names = [info.name for info in self._built.method.inputs]
        told = [f"dimension {axis} of {names[place]} up to {_most(sizes, place, axis)}" for place, axis in sizes.varied]
        if self._built.stateful:
            raise ShapeError(
                f"a call varies {', '.join(sorted(told))}, and the module changes buffers, which would begin anew: "
                "compile it with dynamic_shapes"
            )
        _LOG.warning("%s is compiled again: %s", type(self._module).__name__, ", ".join(sorted(told)))
        example, wanted = list(leaves), list[Any]()
        for place, bounds in enumerate(sizes.bounds):
            axes = [axis for other, axis in sizes.varied if other == place]
            wanted.append({axis: Dim.AUTO(max=_most(sizes, place, axis)) for axis in axes} or None)
            if axes and bounds is not None:
                example[place] = leaves[place].new_zeros(bounds)
        args, kwargs = pytree.tree_unflatten(example, taken)
        _, nested = pytree.tree_flatten(_combine_args(self._module, args, kwargs))
        built = self._build(args, kwargs, pytree.tree_unflatten(wanted, nested))
        fixed = [
            f"dimension {axis} of {names[place]}, which was {_most(self._sizes, place, axis)}"
            for place, axis in sizes.varied
            if built.method.inputs[place].dims[axis].status == STATIC
        ]
        if fixed:  # torch.export took the size of its example for granted
            built.program.close()
            raise ShapeError(
                f"{type(self._module).__name__} computes otherwise at each size of {' and of '.join(sorted(fixed))}: "
                "compile it once for each, or write it so that no branch depends on that size"
            )
        before, self._built, self._sizes = self._built, built, sizes
        before.program.close()
        return built

    def _build(self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> _Built:
        source = ModuleSource(self._module, args, dynamic_shapes, kwargs=kwargs)
        with _steps() as step:
            program, spec = lowered(source, step)
            step("loading")
            head = file_layout(replace(spec, batches=())).head
            loaded = Program(self._target.of_one_program(), open_file(head), _weights(spec), self._progress)
            try:
                method = loaded.load_method("forward")
            except BaseException:
                loaded.close()
                raise
        taken, given = program.call_spec.in_spec, program.call_spec.out_spec
        return _Built(spec, loaded, method, taken, given, bool(program.graph_signature.buffers_to_mutate))


def _most(sizes: _Sizes, place: int, axis: int) -> int:
    return (sizes.bounds[place] or ())[axis]


def _weights(spec: ProgramSpec) -> dict[str, memoryview]:
    """The bytes of every constant, where the module has them."""
    found = {}
    for constant in spec.constants:
        assert isinstance(constant.content, Computed)
        array = as_stored(constant.content.make(), constant.dtype).reshape(-1)
        found[constant.key] = array.view(np.uint8).data if array.size else memoryview(b"")
    return found


@contextmanager
def _steps() -> Iterator[Step]:
    """What is being done, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("tracing") as shown:
        yield shown.update
