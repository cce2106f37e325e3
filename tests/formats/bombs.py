"""Files and graphs of a few bytes that ask for much: each is run on its own in a process with limits, by its name.

`python -m tests.formats.bombs` prints a line of JSON for each: what it ended in, as far as it ended.
"""

from __future__ import annotations

import itertools
import json
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import liveshape
from liveshape import ops
from liveshape.formats import ExecutionPlan, KernelCall, TensorListRef, TensorSpec, open_program
from liveshape.formats.signature import SIGNATURE, InputSignature, Signature, read_signatures, signature_text
from liveshape.graph import Graph, Limits, Tensor
from liveshape.lower.lowering import examine, lower
from liveshape.ops.q4_heuristics import partial_sums_bound, split_k_of
from liveshape.plan.compiling import compile
from liveshape.plan.dimensions import literals_like
from liveshape.plan.plan import Choices

CRAFTED = Path(__file__).parent / "crafted"
DEMO = Path(liveshape.__file__).parent / "demo" / "block.pte"
MEMORY, PROCESSOR_SECONDS = 2 << 30, 20
GPU = Limits(1 << 31, 1024, 1 << 40, 1 << 40, 64, 49152, subgroup=32)


def load(source: Path) -> None:
    """Everything of a load that needs no device."""
    with open_program(source) as program:
        compile(lower(program, "forward", {}))


def a_delegate_called_again_and_again() -> None:
    """Each call of some bytes inlines the whole graph."""
    with open_program(DEMO) as program:
        plan = program.method()
        program.plans = (replace(plan, instructions=plan.instructions * 100_000),)
        examine(program, plan.name, {})


def a_list_read_again_and_again() -> None:
    """Each operator names a long list by one number."""
    x = TensorSpec("float32", (1,), (0,), "static")
    values = (x, TensorListRef((0,) * 50_000), 0, TensorSpec("float32", (50_000,), (0,), "static"))
    call = KernelCall("aten::cat.out", (1, 2, 3, 3))
    plan = ExecutionPlan("forward", values, (0,), (3,), (call,) * 10_000, (), ())
    program: Any = SimpleNamespace(
        nbytes=1 << 20, method=lambda name: plan, signatures={}, tensor_data=lambda spec: None
    )
    examine(program, "forward", {})


def one_constant_in_many_orders() -> None:
    """Each tensor of some bytes copies all data."""
    data = memoryview(bytes(1 << 21))
    shape = (512, 1023)
    values = tuple(
        TensorSpec("float32", shape, (1, 0), "static", data_index=1, storage_offset=each) for each in range(512)
    )
    plan = ExecutionPlan("forward", values, (), (), (), (), ())
    program: Any = SimpleNamespace(
        nbytes=len(data) + 100 * len(values),
        method=lambda name: plan,
        signatures={},
        tensor_data=lambda spec: data[4 * spec.storage_offset :][: 4 * 512 * 1023],
    )
    examine(program, "forward", {})


def graph_of(name: str, args: tuple[Any, ...], inputs: tuple[Tensor, ...], out: Tensor) -> Graph:
    node = ops.OPS[name].bind(0, f"{name} (node 0)", (*args, out))
    return Graph("bomb", (node,), (*inputs, out), inputs, (out,))


def a_roll_of_one_dimension_many_times() -> None:
    """Each of them doubled the copies."""
    x, out = (Tensor(name, "float32", (4, 4)) for name in ("x", "out"))
    plan = compile(graph_of("aten.roll.default", (x, (1,) * 60, (0,) * 60), (x,), out))
    assert len(plan.routes[0].dispatched) <= 2


def a_roll_of_many_dimensions() -> None:
    x, out = (Tensor(name, "float32", (1,) * 60) for name in ("x", "out"))
    compile(graph_of("aten.roll.default", (x, (1,) * 60, tuple(range(60))), (x,), out))


def decimals_by_the_billion() -> None:
    x, out = (Tensor(name, "float32", (4,)) for name in ("x", "out"))
    compile(graph_of("aten.round.decimals", (x, 1 << 40), (x,), out))


def inputs_of_many_sizes() -> None:
    """Pairs of sizes are tried, and those that are left out were counted one by one."""
    inputs = tuple(Tensor(f"x{row}", "float32", tuple(range(2 + 20 * row, 22 + 20 * row))) for row in range(150))
    graph = Graph("bomb", (), inputs, inputs, ())
    assert compile(graph, choices=Choices(warm=False)).untried > 0


def rows_by_the_billion() -> None:
    """Every 64 rows were asked for the splits of a depth; of so many there are none."""
    for columns, depth in ((64, 64), (4096, 1 << 15), (1 << 15, 512)):
        for int8 in (False, True):
            most = partial_sums_bound(1 << 31, columns, depth, int8, GPU)
            assert most == partial_sums_bound(1 << 20, columns, depth, int8, GPU)
            assert split_k_of(1 << 31, columns, depth, int8, GPU) == 1


def numbers_made_of_themselves() -> None:
    """A constant plus itself, and so on: the numbers that it was made of doubled each time."""
    values = [
        Tensor("c", "float32", (1,), memoryview(bytes(4))),
        *(Tensor(f"{at}", "float32", (1,)) for at in range(60)),
    ]
    nodes = [
        ops.OPS["aten.add.Tensor"].bind(at, f"add {at}", (one, one, 1, out))
        for at, (one, out) in enumerate(itertools.pairwise(values))
    ]
    x, out = (Tensor(name, "float32", (7,)) for name in ("x", "out"))
    nodes.append(ops.OPS["aten.add.Tensor"].bind(60, "add", (x, values[-1], 7, out)))
    graph = Graph("bomb", tuple(nodes), (*values, x, out), (x,), (out,))
    assert literals_like(graph, [(x, 0)]) == {(x, 0): "add computes with 7"}


def a_signature_of_many_inputs() -> None:
    """Each name was compared with every other."""
    count = 30_000
    spec = TensorSpec("float32", (), (), "static")
    text = signature_text({"forward": Signature(tuple(InputSignature(f"x{at}", ()) for at in range(count)))})
    plans = {"forward": ExecutionPlan("forward", (spec,), (0,) * count, (), (), (), ())}
    plans[SIGNATURE] = ExecutionPlan(SIGNATURE, (text,), (), (0,), (), (), ())
    assert len(read_signatures(plans)["forward"].inputs) == count


BOMBS: tuple[Callable[[], None], ...] = (
    a_delegate_called_again_and_again,
    a_list_read_again_and_again,
    one_constant_in_many_orders,
    a_roll_of_one_dimension_many_times,
    a_roll_of_many_dimensions,
    decimals_by_the_billion,
    inputs_of_many_sizes,
    rows_by_the_billion,
    numbers_made_of_themselves,
    a_signature_of_many_inputs,
)
FILES = ("bare_table", "few_arguments_of_a_node", "infinite_dimension", "jump_onto_itself", "order_bomb")
FILES += ("no_arguments_of_an_instruction", "output_nobody_writes", "result_of_2_gb", "weight_nobody_writes")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {PROCESSOR_SECONDS} s of a processor")

    signal.signal(signal.SIGVTALRM, stop)
    every = {name: lambda name=name: load(CRAFTED / f"{name}.pte") for name in FILES}
    every |= {bomb.__name__: bomb for bomb in BOMBS}
    for name, bomb in every.items():
        signal.setitimer(signal.ITIMER_VIRTUAL, PROCESSOR_SECONDS)
        found = "done", ""
        try:
            bomb()
        except BaseException as error:
            found = type(error).__name__, str(error)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(json.dumps([name, *found]), flush=True)


if __name__ == "__main__":
    main()
