"""High-level API: `load` a `.pte` file and call it like a function."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from liveshape.disk import Path
from liveshape.formats.source import FileSource
from liveshape.metadata import TensorInfo
from liveshape.option_names import checks_options
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_source
from liveshape.program.memory_use import Memory
from liveshape.program.program import Program, load_program

if TYPE_CHECKING:
    import numpy.typing as npt

    from liveshape.device.protocol import Device
    from liveshape.progress import Progress
    from liveshape.run.results import DeviceTensor


class SupportsDlpack(Protocol):
    """A host tensor of another library, exchanged by DLPack."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...


if TYPE_CHECKING:
    Input = npt.ArrayLike | SupportsDlpack | None
    # An array, a tuple of outputs or a scalar: which one depends on the file, so no type checker can know.
    Output = npt.NDArray[Any] | Any


class Model:
    """A loaded method of a program as a callable on arrays.

    Example: `y = model(x)`, at any shape of x up to `model.inputs[0].bounds`.
    """

    def __init__(self, target: CompileTarget, program: Program, method: str) -> None:
        self._target, self._program = target, program
        self._method = program.load_method(method)
        self.name = method

    def __call__(self, /, *inputs: Input, **named: Input) -> Output:
        """Run once: returns a single output as it is, several as a tuple; torch tensors if an input is one.

        Inputs are positional, by keyword where the file has names, or both.

        Example: `logits = model(tokens, input_pos=position)`.
        """
        return _alone(self._method(*inputs, **named))

    async def call_async(self, /, *inputs: Input, **named: Input) -> Output:
        """Async call: the event loop runs while the device works.

        Example: `logits = await model.call_async(tokens, input_pos=position)`.
        """
        return _alone(await self._method.execute_async(self._method.bind_inputs(inputs, named)))

    def on_device(self, /, *inputs: Input | DeviceTensor, **named: Input | DeviceTensor) -> DeviceTensor | Any:
        """Run once; outputs stay on the device, as inputs of further calls, of other models on the same device as well.

        Each has memory of its own, which comes back when nothing refers to it. Nothing is waited for.

        Example: `y = second(first.on_device(x))`.
        """
        return _alone(self._method.execute_on_device(self._method.bind_inputs(inputs, named)))

    def upload(self, array: Input) -> DeviceTensor:
        """An array on the device of this model, to be an input of many calls and of other models there.

        Example: `image = model.upload(pixels); results = [model(image, scale=scale) for scale in scales]`.
        """
        from liveshape.run.device_arrays import uploaded

        return uploaded(self.device, array)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs: name, dtype, upper bounds, and the range of each dimension."""
        return self._method.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs: name, dtype and upper bounds."""
        return self._method.outputs

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of all methods of the file."""
        return tuple(sorted(self._program.method_names))

    def method(self, name: str) -> Model:
        """Another method of the same file, loaded at first use.

        Example: `model.method("get_max_seq_len")() == 512`.
        """
        return Model(self._target, self._program, name)

    @property
    def device(self) -> Device:
        """The device that methods of this file run on."""
        return self._target.device

    @property
    def memory(self) -> Memory:
        """The GPU memory of this method, in bytes."""
        return self._method.memory

    def close(self) -> None:
        """Free the GPU memory of every method of the file; none of them can be called afterwards."""
        self._program.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        takes = ", ".join(str(info) for info in self.inputs)
        gives = ", ".join(str(info) for info in self.outputs)
        return f"Model({self.name}: ({takes}) -> ({gives}))"


def _alone(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


@checks_options()
def load(
    path: FileSource,
    *,
    device: Device | str | int | None = None,
    backend: str | None = None,
    data_path: Path | Sequence[Path] | None = None,
    method: str = "forward",
    progress: Progress | None = None,
    strict: bool = False,
    activations: str = "float32",
) -> Model:
    """Load a method of a `.pte`, or of the folder that contains it, as a callable.

    `device` is an index or part of a name, as `liveshape devices` lists them. `backend` is `wgpu`, or
    `dawn`, which has matrix units (`pip install 'liveshape[dawn]'`); by default the faster one there.
    `data_path` is one `.ptd` or several; `progress(done, total)` is called with bytes of weights uploaded.
    Operators without a kernel fall back to the host, slowly and with a warning; `strict` refuses them.
    `activations="int8"` quantizes activations of 4- and 8-bit layers in groups of 32: faster on a GPU, and less exact.
    `"float16"` permits that inputs of products are rounded to float16 for the matrix units of a device, and `"auto"` is
    that where it has some.

    Example: `y = load("model.pte")(x)`.
    """
    target = CompileTarget(device, backend=backend, strict=strict, activations=activations)
    program = load_program(target, program_source(path), data_path=data_path, progress=progress)
    try:
        return Model(target, program, method)
    except BaseException:
        program.close()
        raise
