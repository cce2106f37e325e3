"""The calls of executorch.runtime: change the import line and a program runs here, without torch.

Numpy arrays give numpy arrays; who gives torch tensors gets torch tensors back.

from liveshape.runtime import Runtime

program = Runtime.get().load_program("model.pte")
outputs = program.load_method("forward").execute([x])
"""

from __future__ import annotations

import enum
import functools
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from liveshape.errors import FormatError, InputError, ShapeError, UnsupportedError
from liveshape.formats import ExecutionPlan, Signature, open_program, open_tensor_data
from liveshape.formats import Program as File
from liveshape.formats.signature import assumed_signature
from liveshape.formats.source import FileSource
from liveshape.graph import Graph, Tensor
from liveshape.metadata import (
    MethodMeta,
    MethodNotFoundError,
    TensorInfo,
    TensorMeta,
    inputs_of,
    is_constant,
    outputs_of,
)
from liveshape.plan.plan import Plan
from liveshape.run.keywords import arranged, swapped

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.run.executor import Executor, Pending

_LOG = logging.getLogger("liveshape")

Progress = Callable[[int, int], None]
Path = str | os.PathLike[str]


class Verification(enum.Enum):
    """How much of a file to check. Taken for compatibility: liveshape always checks every offset and length."""

    Minimal = 0
    InternalConsistency = 1


@dataclass(frozen=True)
class Memory:
    """GPU memory of a method in bytes, and what its activations would take otherwise.

    Example: `print(f"{method.memory.total:,} bytes")`.
    """

    weights: int
    state: int  # caches and other tensors that outlive a call
    activations: int
    staging: int  # what results are read back through
    params: int
    unshared: int  # the activations, had each tensor memory of its own
    file_plan: int  # the activations, by the plan that the exporter wrote into the file

    @property
    def total(self) -> int:
        return self.weights + self.state + self.activations + self.staging + self.params


def memory_of(plan: Plan) -> Memory:
    """What an executor of a plan takes on its device.

    Example: `memory_of(compile(graph, limits)).weights`.
    """
    memory = plan.memory
    return Memory(
        weights=memory.persistent_bytes - plan.state_bytes,
        state=plan.state_bytes,
        activations=memory.activation_bytes,
        staging=plan.choices.transfers * plan.staging_bytes,
        params=plan.uniform_bytes,
        unshared=memory.unshared_bytes,
        file_plan=plan.graph.planned_bytes(plan.limits.half),
    )


class Method:
    """A method, ready to run. Its buffers belong to one call at a time, so a lock lets threads in one by one.

    Different methods may run in different threads at once.
    """

    def __init__(
        self, plan: ExecutionPlan, signature: Signature | None, runner: Executor | _Constants, memory: Memory
    ) -> None:
        self._plan = plan
        self._signature = signature or assumed_signature(plan)
        self._runner: Executor | _Constants | None = runner
        self._lock = threading.Lock()
        self.memory = memory
        # What the method takes, and what it gives.
        self.inputs = inputs_of(plan, signature)
        self.outputs = outputs_of(plan)

    def execute(self, inputs: Sequence[Any] = ()) -> list[Any]:
        """Run once. Inputs are numpy arrays, torch tensors, lists or numbers; arrays and numbers come back.

        Where an input is a torch tensor, arrays come back as torch tensors.

        Example: `logits, = method.execute([tokens, position])`.
        """
        with self._lock:
            found = self._start(inputs).result()
        return self._given_back(found, inputs)

    async def execute_async(self, inputs: Sequence[Any] = ()) -> list[Any]:
        """The same without holding up an event loop while the device works.

        Example: `logits, = await method.execute_async([tokens, position])`.
        """
        with self._lock:
            pending = self._start(inputs)
        return self._given_back(await pending.result_async(), inputs)

    def _start(self, inputs: Sequence[Any]) -> Pending | _Constants:
        try:
            return self._opened().start(inputs)
        except (InputError, ShapeError) as error:
            order = swapped(self.inputs, inputs) if isinstance(inputs, (list, tuple)) else ""
            if not order:
                raise
            problem = str(error).partition("; ")[0]
            raise type(error)(f"{problem}; the inputs look swapped: {self._plan.name} takes ({order})") from error

    def _given_back(self, found: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """Results as the caller has his tensors: torch is never imported for it."""
        torch = sys.modules.get("torch")
        kind = getattr(torch, "Tensor", None)
        if kind is None or not any(isinstance(value, kind) for value in inputs):
            return found
        from liveshape.run.arrays import as_torch

        return [
            as_torch(torch, value, info.dtype) if info.is_tensor else value
            for value, info in zip(found, self.outputs, strict=True)
        ]

    def _opened(self) -> Executor | _Constants:
        if self._runner is None:
            raise InputError(f"{self._plan.name}: the program was closed; load it again")
        return self._runner

    def __call__(self, /, *inputs: Any, **named: Any) -> list[Any]:
        """The same as `execute`, with the inputs one by one, in order or by their names.

        Example: `logits, = method(tokens, input_pos=position)`.
        """
        return self.execute(self.arranged(inputs, named))

    def arranged(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """Inputs that were given in order and by name as `execute` takes them.

        Example: `method.execute(method.arranged((tokens,), {"input_pos": position}))`.
        """
        return arranged(self._plan.name, self._signature, inputs, named)

    @property
    def metadata(self) -> MethodMeta:
        """What the method takes and gives, with the calls of executorch.runtime."""
        return MethodMeta(self._plan)

    def _close(self) -> None:
        with self._lock:
            runner, self._runner = self._runner, None
            if runner is not None:
                runner.close()

    def __repr__(self) -> str:
        return f"Method({self._plan.name!r})"


class Program:
    """An open `.pte` and its `.ptd` files. A method takes GPU memory when it is first loaded, and is then kept."""

    def __init__(self, runtime: Runtime, file: File, data: Mapping[str, memoryview], progress: Progress | None) -> None:
        self._runtime, self._progress = runtime, progress
        self.file, self.data = file, data
        self._methods: dict[str, Method] = {}
        self._lock = threading.RLock()
        self._told = False  # what is said once a file

    @property
    def method_names(self) -> set[str]:
        """The names of all methods.

        Example: `"forward" in program.method_names`.
        """
        return {plan.name for plan in self.file.plans}

    def load_method(self, name: str) -> Method:
        """The method of this name: planned, its weights uploaded and its kernels compiled at the first call.

        Example: `program.load_method("forward").execute([x])`.
        """
        with self._lock:
            plan = self._plan(name)
            if plan.name not in self._methods:
                self._methods[plan.name] = self._load(plan)
            return self._methods[plan.name]

    def metadata(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it.

        Example: `program.metadata("forward").input_tensor_meta(0).sizes()`.
        """
        return MethodMeta(self._plan(method_name))

    def inputs(self, method_name: str) -> tuple[TensorInfo, ...]:
        """What a method takes, without loading it.

        Example: `program.inputs("forward")[0].bounds`.
        """
        return inputs_of(self._plan(method_name), self.file.signatures.get(method_name))

    def outputs(self, method_name: str) -> tuple[TensorInfo, ...]:
        """What a method gives, without loading it.

        Example: `program.outputs("forward")[0].dtype`.
        """
        return outputs_of(self._plan(method_name))

    def graph(self, method_name: str, rewrite: Callable[[Graph], Graph] | None = None) -> Graph:
        """A method as the device of the runtime runs it; `rewrite` is given it as the file has it, before that.

        Example: `len(program.graph("forward").nodes)`.
        """
        from liveshape.lower.activations import with_activations
        from liveshape.lower.lowering import lower
        from liveshape.run.host import find_on_host

        runtime = self._runtime
        made = lower(self.file, method_name, self.data, runtime.device.limits, find_on_host, runtime.strict, rewrite)
        return with_activations(made, runtime.activations, runtime.device.limits)

    def write_etdump_result_to_file(self, etdump_path: Path, debug_buffer_path: Path | None = None) -> None:
        """Not available: liveshape keeps no ETDump."""
        raise UnsupportedError("liveshape writes no ETDump")

    def close(self) -> None:
        """Give the memory of all methods back and let go of the files."""
        with self._lock:
            for method in self._methods.values():
                method._close()
            self._methods.clear()
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
            # The operators are needed to run a method, not to open a file.
            from liveshape.lower.lowering import lower

            constants = _Constants(lower(self.file, plan.name, self.data))
            return Method(plan, signature, constants, Memory(0, 0, 0, 0, 0, 0, 0))
        from liveshape.plan.compiling import compile
        from liveshape.run.executor import Executor
        from liveshape.run.host import compile_with_host
        from liveshape.run.legal import CallCheck

        device, made = self._runtime.device, self.graph(plan.name)
        compiled = (compile if self._runtime.strict else compile_with_host)(made, device.limits)
        tell_host(compiled.graph)
        if not self._told and any(tensor.dtype == "bfloat16" for tensor in compiled.graph.tensors):
            self._told = True
            _LOG.warning("bfloat16 is computed and kept in float32, each result rounded; arrays come as float32")
        check = CallCheck(compiled, signature or assumed_signature(plan))
        executor = Executor(compiled, device, progress=self._progress, check=check)
        return Method(plan, signature, executor, memory_of(compiled))


def tell_host(graph: Graph) -> None:
    """One warning that names what the host computes, if it computes anything.

    Example: `tell_host(program.graph("forward"))`.
    """
    counts = Counter(node.name for node in graph.nodes if node.host)
    if counts:
        names = ", ".join(f"{name} ({count} x)" for name, count in counts.items())
        _LOG.warning("%s: no kernel computes %s: the host does, and the device waits for it", graph.name, names)


class _Constants:
    """The outputs of a method that computes nothing, straight from the file."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def start(self, inputs: Sequence[Any]) -> _Constants:
        if inputs:
            raise InputError(f"{self._graph.name} takes 0 inputs, {len(inputs)} were given")
        return self

    def result(self) -> list[Any]:
        from liveshape.run.arrays import as_array

        return [as_array(value).copy() if isinstance(value, Tensor) else value for value in self._graph.outputs]

    async def result_async(self) -> list[Any]:
        return self.result()

    def close(self) -> None:
        """Nothing lies on a device."""


class BackendRegistry:
    """Which delegates can run: those of VulkanPartitioner, where an adapter exists."""

    @property
    def registered_backend_names(self) -> list[str]:
        """The delegate ids that liveshape runs.

        Example: `Runtime.get().backend_registry.registered_backend_names == ["VulkanBackend"]`.
        """
        from liveshape.lower.lowering import BACKEND

        return [BACKEND]

    def is_available(self, backend_name: str) -> bool:
        """Whether delegates of this id can run on this machine.

        Example: `Runtime.get().backend_registry.is_available("VulkanBackend")`.
        """
        from liveshape.device.backends import list_adapters

        return backend_name in self.registered_backend_names and bool(list_adapters())


class OperatorRegistry:
    """Which operators can run."""

    @property
    def operator_names(self) -> set[str]:
        """The exported names, of delegates (`aten.add.Tensor`) and of portable programs (`aten::add.out`).

        Example: `"aten::add.out" in Runtime.get().operator_registry.operator_names`.
        """
        from liveshape.ops import OPS, callable_by_files

        return {name for name in OPS if callable_by_files(name)}


class Runtime:
    """Loads programs onto one device, which is opened when the first method that computes is loaded.

    An operator without a kernel runs on the host, slowly and with a warning; where `strict`, it is refused.
    `activations="int8"` rounds the rows of 4-bit linear layers to integers: faster on a GPU, and less exact.

    Example: `Runtime(device="nvidia").load_program("model.pte")`.
    """

    def __init__(
        self, device: Device | str | int | None = None, *, strict: bool = False, activations: str = "float32"
    ) -> None:
        self.strict = strict
        self.activations = activations
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()
        self._choice = device
        self._opened: Device | None = None

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> Runtime:
        """The runtime of this process, on the default device."""
        return Runtime()

    @property
    def device(self) -> Device:
        """The open device."""
        if self._opened is None or self._opened.lost:
            if self._choice is None or isinstance(self._choice, (str, int)):
                from liveshape.device.backends import open_device

                self._opened = open_device(self._choice)
            else:
                self._opened = self._choice
        return self._opened

    def load_program(
        self,
        data: FileSource,
        *,
        verification: Any = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: Path | Sequence[Path] | None = None,
        progress: Progress | None = None,
    ) -> Program:
        """Open a `.pte` from a path, bytes or a binary file; `data_path` is one `.ptd` or several.

        `progress(done, total)` is told the bytes of weights uploaded while a method loads.

        Example: `runtime.load_program("model.pte", data_path="weights.ptd").method_names`.
        """
        if enable_etdump:
            _LOG.warning("liveshape writes no ETDump: enable_etdump is ignored")
        with _naming(data):
            file = open_program(data)
        return Program(self, file, read_tensor_data(data_path), progress)


@contextmanager
def _naming(source: object) -> Iterator[None]:
    """Put the path of a file that cannot be read in front of the reason."""
    try:
        yield
    except (FormatError, UnsupportedError) as error:
        if not isinstance(source, (str, os.PathLike)):
            raise
        raise type(error)(f"{os.fspath(source)}: {error}") from error


def read_tensor_data(data_path: Path | Sequence[Path] | None) -> dict[str, memoryview]:
    """The data of one `.ptd` or several by key; the files stay mapped while a view of them lives.

    Example: `read_tensor_data(["base.ptd", "adapter.ptd"])`.
    """
    paths = () if data_path is None else (data_path,) if isinstance(data_path, (str, os.PathLike)) else data_path
    found: dict[str, memoryview] = {}
    for path in paths:
        with _naming(path), open_tensor_data(path) as file:
            for key, entry in file.entries.items():
                if key in found and found[key] != entry.data:
                    raise InputError(f"{os.fspath(path)}: another file has other data under {key!r}; give one of them")
                found[key] = entry.data
    return found


__all__ = [
    "BackendRegistry",
    "Memory",
    "Method",
    "MethodMeta",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "TensorMeta",
    "Verification",
]
