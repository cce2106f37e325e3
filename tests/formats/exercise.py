"""Everything that liveshape does with the bytes of a file before a GPU is involved, in one call for the fuzz tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from liveshape.errors import LiveshapeError
from liveshape.formats import PteFile, TensorSpec, VkGraph, open_program, open_tensor_data, parse_vkgraph
from liveshape.lower.lowering import examine
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices

_PROCESSOR_SECONDS = 60  # that nothing here takes a hundredth of


def exercise_program(data: bytes) -> None:
    """Open a program and touch all of it: values, data, delegates; then build and plan every method."""
    with open_program(data) as program:
        graphs: dict[int, VkGraph] = {}
        for view in program.named_data.values():
            len(view)
        for plan in program.plans:
            for value in plan.values:
                if isinstance(value, TensorSpec):
                    program.tensor_data(value)
            for delegate in plan.delegates:
                # One blob may serve many delegates; reading it once for each would cost more than the file paid for.
                if id(delegate.blob) not in graphs:
                    graphs[id(delegate.blob)] = parse_vkgraph(delegate.blob)
        for graph in graphs.values():
            exercise_graph(graph, program)
        for plan in program.plans:
            exercise_method(program, plan.name)


class AnyData(dict[str, memoryview]):
    """External data for every key, so that programs that refer to some can be built without it."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> memoryview:
        return memoryview(bytes(1 << 16))


def exercise_method(program: PteFile, name: str) -> None:
    """Build the graph of a method, plan it at its bounds and give it memory, as loading it does.

    Unsupported operators are left out, so that files that hold some are planned all the same.
    """
    graph, _ = examine(program, name, AnyData())
    compile(graph, choices=Choices(warm=False))


def exercise_graph(graph: VkGraph, program: PteFile) -> None:
    """Use a graph as its reader may: every id without a check, every constant by key or inline."""
    for call in graph.chain:
        for index in call.args:
            graph.values[index]
    for index in (*graph.input_ids, *graph.output_ids):
        graph.values[index]
    for constant in graph.constants:
        data = constant.data if constant.key is None else program.named_data.get(constant.key)
        if constant.key is None:
            assert data is not None
            assert len(data) == constant.length


def exercise_tensor_data(data: bytes) -> None:
    """Open tensor data and touch all of it."""
    with open_tensor_data(data) as weights:
        for entry in weights.entries.values():
            len(entry.data)


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """What never ends is ended, by the time that it computed; what is foreign is named."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {_PROCESSOR_SECONDS} s of a processor")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _PROCESSOR_SECONDS)
    try:
        yield
    except LiveshapeError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
