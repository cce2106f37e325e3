"""Random programs as texts, and in a page what runs them: this file goes there as it is, with those that it imports."""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from traceback import format_exc
from typing import Any

import numpy as np

from liveshape.device.backends import open_device
from liveshape.graph import Tensor
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from tests.graphs.building import graph_of
from tests.graphs.program import Call, Program, Ref, Value

# What a page takes of the tests, by their names below the root of the repository.
FILES = (
    *("tests/graphs/program.py", "tests/graphs/building.py", "tests/support/chains.py", "tests/web/page_graphs.py"),
    *("tests/__init__.py", "tests/graphs/__init__.py", "tests/support/__init__.py", "tests/web/__init__.py"),
)


def spelled(thing: Any) -> Any:
    """Arguments, arrays and numbers as JSON has them."""
    if isinstance(thing, Ref):
        return {"ref": thing.number}
    if isinstance(thing, (tuple, list)):
        return [spelled(each) for each in thing]
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    array = np.asarray(thing)
    data = b2a_base64(array.tobytes(), newline=False)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data.decode()}


def read(thing: Any) -> Any:
    """What `spelled` has written; every list is a tuple."""
    if isinstance(thing, list):
        return tuple(read(each) for each in thing)
    if not isinstance(thing, dict):
        return thing
    if "ref" in thing:
        return Ref(thing["ref"])
    return np.frombuffer(a2b_base64(thing["data"]), thing["dtype"]).reshape(tuple(thing["shape"]))


def text_of(program: Program) -> str:
    """A program as a text."""
    values = [[value.role, value.dtype, value.bound, spelled(value.data)] for value in program.values]
    calls = [[call.operator, spelled(call.args), spelled(call.targets)] for call in program.calls]
    return json.dumps([program.seed, program.count, values, calls, spelled(program.outputs)])


def program_of(text: str) -> Program:
    """The program of a text."""
    seed, count, values, calls, outputs = json.loads(text)
    return Program(
        seed,
        count,
        tuple(Value(role, dtype, tuple(bound), read(data)) for role, dtype, bound, data in values),
        tuple(Call(operator, read(args), read(targets)) for operator, args, targets in calls),
        read(outputs),
    )


def results(text: str) -> str:
    """All calls of a program in a row on the device of this process, then its states, as JSON."""
    program, device = program_of(text), open_device()
    graph, values = graph_of(program, device.limits, True)
    executor = Executor(compile(graph, device.limits, Choices(warm=False)), device)
    try:
        found = []
        for turn in range(program.count):
            executor.poison()
            found.append(spelled(executor.execute(program.given(turn))))
        states = [executor.state(values[ref]) if held(executor, values[ref]) else None for ref in program.states]
        return json.dumps([*found, spelled(states)])
    finally:
        executor.close()


def held(executor: Executor, tensor: Tensor) -> bool:
    """Whether anything uses a state, so that it has memory."""
    return tensor in executor.plan.memory.storages


def told(text: str) -> str:
    """`results`, or what it raised."""
    try:
        return results(text)
    except Exception:
        return json.dumps({"failed": format_exc()})
