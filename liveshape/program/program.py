"""An open program whose methods are loaded lazily: lowered, compiled, weights uploaded."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from liveshape.disk import Path
from liveshape.errors import UnsupportedError
from liveshape.formats import ExecutionPlan, PteFile
from liveshape.formats.signature import assumed_signature
from liveshape.formats.source import FileSource
from liveshape.graph import Graph
from liveshape.metadata import MethodMeta, MethodNotFoundError, TensorInfo, inputs_of, is_constant, outputs_of
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import open_file, read_tensor_data
from liveshape.program.memory_use import Memory, memory_of
from liveshape.program.method import ConstantMethod, Method

if TYPE_CHECKING:
    from liveshape.progress import Progress

_LOG = logging.getLogger("liveshape")


class Program:
    """An open `.pte` and its `.ptd` files. Methods are loaded to the GPU at first use and cached."""

    def __init__(
        self, target: CompileTarget, file: PteFile, data: Mapping[str, memoryview], progress: Progress | None
    ) -> None:
        self._target, self._progress = target, progress
        self.file, self.data = file, data
        self._methods: dict[str, Method] = {}
        self._lock = threading.RLock()
        target.expect(file)
        self._told = False  # whether the bfloat16 warning was given: once per file

    @property
    def method_names(self) -> set[str]:
        """The names of all methods.

        Example: `"forward" in program.method_names`.
        """
        return {plan.name for plan in self.file.plans}

    def load_method(self, name: str) -> Method:
        """Load a method: planned, weights uploaded and kernels compiled at the first call, then cached.

        Example: `program.load_method("forward").execute([x])`.
        """
        with self._lock:
            plan = self._plan(name)
            if plan.name not in self._methods:
                self._methods[plan.name] = self._load(plan)
            return self._methods[plan.name]

    def metadata(self, method_name: str) -> MethodMeta:
        """Inputs and outputs of a method as executorch.runtime describes them, without loading it.

        Example: `program.metadata("forward").input_tensor_meta(0).sizes()`.
        """
        return MethodMeta(self._plan(method_name))

    def inputs(self, method_name: str) -> tuple[TensorInfo, ...]:
        """The inputs of a method, without loading it.

        Example: `program.inputs("forward")[0].bounds`.
        """
        return inputs_of(self._plan(method_name), self.file.signatures.get(method_name))

    def outputs(self, method_name: str) -> tuple[TensorInfo, ...]:
        """The outputs of a method, without loading it.

        Example: `program.outputs("forward")[0].dtype`.
        """
        return outputs_of(self._plan(method_name))

    def graph(self, method_name: str, rewrite: Callable[[Graph], Graph] | None = None) -> Graph:
        """The lowered and fused graph of a method for the target device; `rewrite` is applied before fusion.

        Example: `len(program.graph("forward").nodes)`.
        """
        from liveshape.lower.activations import with_activations
        from liveshape.lower.lowering import lower
        from liveshape.run.half_scales import fit_halves
        from liveshape.run.host import find_on_host

        target = self._target
        made = lower(self.file, method_name, self.data, target.limits, find_on_host, target.strict, rewrite)
        return with_activations(made, target.activations, target.limits, fit_halves)

    def write_etdump_result_to_file(self, etdump_path: Path, debug_buffer_path: Path | None = None) -> None:
        """Not available: liveshape records no ETDump."""
        raise UnsupportedError("liveshape writes no ETDump")

    def close(self) -> None:
        """Free the device memory of all methods and close the files."""
        with self._lock:
            for method in self._methods.values():
                method.close()
            self._methods.clear()
            self._target.expect(None)
            self.file.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan(self, name: str) -> ExecutionPlan:
        for plan in self.file.plans:
            if plan.name == name:
                return plan
        listing = ", ".join(plan.name for plan in self.file.plans)
        raise MethodNotFoundError(f"the program has no method {name!r}; it has {listing}")

    def _load(self, plan: ExecutionPlan) -> Method:
        signature = self.file.signatures.get(plan.name)
        if is_constant(plan):
            # Lazy import: operators are needed to run a method, not to open a file.
            from liveshape.lower.lowering import lower

            constants = ConstantMethod(lower(self.file, plan.name, self.data))
            return Method(plan, signature, constants, Memory(0, 0, 0, 0, 0, 0, 0))
        from liveshape.run.constant_norms import compile_measured
        from liveshape.run.executor import Executor
        from liveshape.run.host import compile_with_host
        from liveshape.run.legal import CallCheck

        device, made = self._target.device, self.graph(plan.name)
        compiled = (compile_measured if self._target.strict else compile_with_host)(made, self._target.limits)
        tell_host(compiled.graph)
        if not self._told and any(tensor.dtype == "bfloat16" for tensor in compiled.graph.tensors):
            self._told = True
            _LOG.warning("bfloat16 is computed and kept in float32, each result rounded; arrays come as float32")
        check = CallCheck(compiled, signature or assumed_signature(plan))
        executor = Executor(compiled, device, progress=self._progress, check=check)
        return Method(plan, signature, executor, memory_of(compiled))


def load_program(
    target: CompileTarget,
    data: FileSource,
    *,
    data_path: Path | Sequence[Path] | None = None,
    progress: Progress | None = None,
) -> Program:
    """Open a `.pte` from a path, bytes or a binary file; `data_path` is one `.ptd` or several.

    `progress(done, total)` is called with bytes of weights uploaded while a method loads.

    Example: `load_program(CompileTarget(), "model.pte", data_path="weights.ptd").method_names`.
    """
    return Program(target, open_file(data), read_tensor_data(data_path), progress)


def tell_host(graph: Graph) -> None:
    """Log one warning that lists the operators that fall back to the host, if any.

    Example: `tell_host(program.graph("forward"))`.
    """
    counts = Counter(node.name for node in graph.nodes if node.host)
    if counts:
        names = ", ".join(f"{name} ({count} x)" for name, count in counts.items())
        _LOG.warning("%s: no kernel computes %s: the host does, and the device waits for it", graph.name, names)
