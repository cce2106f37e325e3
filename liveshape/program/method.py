"""A loaded method: arrays in, arrays out; numpy in gives numpy out, torch tensors give torch tensors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from liveshape.errors import InputError, ShapeError
from liveshape.formats import ExecutionPlan, Signature
from liveshape.formats.signature import assumed_signature
from liveshape.graph import Graph, Tensor
from liveshape.metadata import MethodMeta, inputs_of, outputs_of
from liveshape.program.memory_use import Memory
from liveshape.run.keywords import bind_inputs, fitting_order

if TYPE_CHECKING:
    from liveshape.run.executor import Executor
    from liveshape.run.pending import Pending


class Method:
    """A loaded method. Its buffers belong to one call at a time, so a lock serializes threads.

    Different methods may run concurrently in different threads.
    """

    def __init__(
        self, plan: ExecutionPlan, signature: Signature | None, runner: Executor | ConstantMethod, memory: Memory
    ) -> None:
        self._plan = plan
        self._signature = signature or assumed_signature(plan)
        self._runner: Executor | ConstantMethod | None = runner
        self._lock = threading.Lock()
        self.memory = memory
        # Metadata of inputs and outputs.
        self.inputs = inputs_of(plan, signature)
        self.outputs = outputs_of(plan)

    def execute(self, inputs: Sequence[Any] = ()) -> list[Any]:
        """Run once. Inputs are numpy arrays, torch tensors, lists or scalars; returns arrays and scalars.

        Where an input is a torch tensor, outputs are torch tensors.

        Example: `logits, = method.execute([tokens, position])`.
        """
        with self._lock:
            found = self._start(inputs).result()
        return self._given_back(found, inputs)

    async def execute_async(self, inputs: Sequence[Any] = ()) -> list[Any]:
        """Async `execute`: the event loop runs while the device works.

        Example: `logits, = await method.execute_async([tokens, position])`.
        """
        with self._lock:
            pending = self._start(inputs)
        return self._given_back(await pending.result_async(), inputs)

    def execute_on_device(self, inputs: Sequence[Any] = ()) -> list[Any]:
        """Run once; tensors stay on the device, each in memory of its own, and are inputs of further calls.

        Example: `hidden, = encoder.execute_on_device([x]); y, = decoder.execute([hidden])`.
        """
        with self._lock:
            return self._start(inputs, wanted=()).kept()

    def _start(self, inputs: Sequence[Any], wanted: Sequence[int] | None = None) -> Pending | ConstantMethod:
        try:
            return self._opened().start(inputs, wanted)
        except (InputError, ShapeError) as error:
            order = fitting_order(self.inputs, inputs) if isinstance(inputs, (list, tuple)) else ""
            if not order:
                raise
            problem = str(error).partition("; ")[0]
            raise type(error)(f"{problem}; the inputs look swapped: {self._plan.name} takes ({order})") from error

    def _given_back(self, found: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """Outputs as torch tensors if an input is one; never imports torch itself."""
        torch = sys.modules.get("torch")
        kind = getattr(torch, "Tensor", None)
        if kind is None or not any(isinstance(value, kind) for value in inputs):
            return found
        from liveshape.run.arrays import as_torch

        return [
            as_torch(torch, value, info.dtype) if info.is_tensor else value
            for value, info in zip(found, self.outputs, strict=True)
        ]

    def _opened(self) -> Executor | ConstantMethod:
        if self._runner is None:
            raise InputError(f"{self._plan.name}: the program was closed; load it again")
        return self._runner

    def __call__(self, /, *inputs: Any, **named: Any) -> list[Any]:
        """`execute` with positional and keyword inputs.

        Example: `logits, = method(tokens, input_pos=position)`.
        """
        return self.execute(self.bind_inputs(inputs, named))

    def bind_inputs(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """Bind positional and keyword inputs to the list that `execute` takes.

        Example: `method.execute(method.bind_inputs((tokens,), {"input_pos": position}))`.
        """
        return bind_inputs(self._plan.name, self._signature, inputs, named)

    @property
    def metadata(self) -> MethodMeta:
        """Inputs and outputs of the method, with the API of executorch.runtime."""
        return MethodMeta(self._plan)

    def close(self) -> None:
        """Free its device memory; a call after that is an InputError.

        Example: `method.close()`, which `Program.close` does for all of them.
        """
        with self._lock:
            runner, self._runner = self._runner, None
            if runner is not None:
                runner.close()

    def __repr__(self) -> str:
        return f"Method({self._plan.name!r})"


class ConstantMethod:
    """A method that computes nothing: its outputs are constants in the file."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def start(self, inputs: Sequence[Any], wanted: Sequence[int] | None = None) -> ConstantMethod:
        if inputs:
            raise InputError(f"{self._graph.name} takes 0 inputs, {len(inputs)} were given")
        return self

    def result(self) -> list[Any]:
        from liveshape.run.arrays import as_array

        return [as_array(value).copy() if isinstance(value, Tensor) else value for value in self._graph.outputs]

    async def result_async(self) -> list[Any]:
        return self.result()

    def kept(self) -> list[Any]:
        """Constants are on no device."""
        return self.result()

    def close(self) -> None:
        """No-op: it has no device memory."""
