"""Random graphs of all operator families, run in every way there is: equal bytes, and torch's results.

On a device whose driver may contract products and sums that were fused, and with every row of the table of fusions,
`test_rounding.py` compares with float64; here nothing is contracted or reordered, wherever it runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from liveshape.device.backends import open_device
from tests.graphs.batches import BATCH, COUNT, SEED, every_call, problem, run_batch, seeds
from tests.graphs.comparing import Wrong, check_close, check_same
from tests.graphs.generator import attention_program, random_program
from tests.graphs.program import Program, shrunk
from tests.graphs.reference import expected
from tests.graphs.running import LIMITS, Choices, Interrupt, Run
from tests.support.uncontracted import nothing_contracted

PLAIN = Choices(aliasing=False, fusion=False, classes=False, tracing=False)
SEVERAL = 1000  # graphs from which on attention meets odd limits, each of which compiles its kernels anew
REFUSED = 0.15  # of the graphs under odd limits, at most
PLACES = ("plan", "plan", "write", "write", "submit", "read")


@pytest.fixture(autouse=True, scope="module")
def _bits_of_operators() -> Iterator[None]:
    """A GPU's driver may round a product and a sum once where they are fused: bytes are compared without."""
    shared: Any = open_device()
    if shared.adapter.software:
        yield
        return
    with nothing_contracted():
        yield


def check_choices(program: Program, chance: random.Random) -> None:
    """As it runs, and with some of what a compiler chooses switched off: the same bytes."""
    truth = expected(program)
    best = Choices(warm=chance.random() < 0.02)
    switches = ("aliasing", "fusion", "classes", "tracing")
    others = [PLAIN, PLAIN, replace(best, fusion=False), *(replace(best, **{switch: False}) for switch in switches)]
    first = every_call(program, best, truth)
    choices = chance.choice(others)
    for turn, results in enumerate(every_call(program, choices, truth)):
        check_same(results, first[turn], f"{choices} and {best}, call {turn}")


def check_attention(program: Program, chance: random.Random) -> None:
    """Attention that is spelled out rounds otherwise where it is fused: as it runs and unfused within what torch gives,
    with other choices of a compiler the same bytes."""
    truth = expected(program)
    limits = chance.choice(("", "", "", *LIMITS)) if COUNT >= SEVERAL else ""
    best = Choices(limits=limits)
    first = every_call(program, best, truth)
    every_call(program, replace(best, fusion=False), truth)
    switched = replace(best, **{chance.choice(("aliasing", "classes", "tracing")): False})
    for turn, results in enumerate(every_call(program, switched, truth)):
        check_same(results, first[turn], f"{switched} and {best}, call {turn}")


def check_limits(program: Program, chance: random.Random) -> None:
    """On a device with small and odd limits: the same for a batch, since each device compiles its own kernels."""
    limits = [*LIMITS][(program.seed - SEED) // BATCH % len(LIMITS)]
    truth = expected(program)
    first = every_call(program, Choices(limits=limits), truth)
    if chance.random() < 0.3:
        other = Choices(limits=limits, aliasing=chance.random() < 0.5, classes=False)
        for turn, results in enumerate(every_call(program, other, truth)):
            check_same(results, first[turn], f"{other}, call {turn}")


def check_resumed(program: Program, chance: random.Random) -> None:
    """The end of a call once more gives what the call gave, and leaves the next call right."""
    calls, states, _ = expected(program)
    choices = Choices(aliasing=chance.random() < 0.8)
    run = Run(program, choices, lambda points: sorted(chance.sample(points, min(2, len(points)))))
    for turn in range(program.count):
        results = run.call(turn)
        check_close(results, calls[turn], f"call {turn}")
        for point in run.points:
            check_same(run.resume(point), results, f"call {turn} resumed at node {point}")
    check_close(run.states(), states, "states")
    run.close()


def check_interrupted(program: Program, chance: random.Random) -> None:
    """A call that ends in the middle changes nothing of the next one."""
    calls, states, _ = expected(program)
    run = Run(program, Choices(aliasing=chance.random() < 0.8))
    for turn in range(program.count):
        while chance.random() < 0.6:
            place, after = chance.choice(PLACES), chance.choice((0, 0, 0, 1, 2, 5))
            run.executor.poison()
            with run.interrupted(place, after) as passed:
                try:
                    run.executor.execute(program.given(chance.randrange(program.count)))
                except Interrupt:
                    ended = True
                else:
                    ended = False
            if program.states and (not ended or passed["submit"]):
                return  # a part of that call may have written a state: what it holds now is nobody's promise
        check_close(run.call(turn), calls[turn], f"call {turn}")
    check_close(run.states(), states, "states")
    run.close()


def check_host(program: Program, chance: random.Random) -> None:
    """With nodes computed by the host: between kernels, in loops and branches, on states, and where a call resumes."""
    calls, states, _ = expected(program)
    choices = Choices(
        aliasing=chance.random() < 0.8, fusion=False, classes=chance.random() < 0.8, host=chance.choice((0.1, 0.4, 1.0))
    )
    run = Run(program, choices, lambda points: sorted(chance.sample(points, min(1, len(points)))))
    for turn in range(program.count):
        results = run.call(turn)
        check_close(results, calls[turn], f"{choices}, call {turn}")
        for point in run.points:
            check_same(run.resume(point), results, f"{choices}, call {turn} resumed at node {point}")
    check_close(run.states(), states, f"{choices}, states")
    run.close()


@pytest.mark.parametrize("first", seeds(1))
def test_aliasing_fusion_and_classes_are_never_seen(first: int) -> None:
    assert run_batch(check_choices, first)["refused"] == 0


# Of 5,000 those whose fused kernels a driver computed in another order: a sum in the epilogue of a product with a bias,
# and gelu(a) + 2 * a, of which it made a product.
@pytest.mark.parametrize("seed", [20263184, 20263478, 20265513])
def test_sums_that_a_driver_would_take_in_another_order(seed: int) -> None:
    error = problem(check_choices, random_program(seed))
    assert error is None, error


@pytest.mark.parametrize("first", seeds(0.1))
def test_attention_that_is_spelled_out(first: int) -> None:
    run_batch(check_attention, first, attention_program)


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(0.25))
def test_small_and_odd_limits(first: int) -> None:
    seen = run_batch(check_limits, first)
    assert seen["refused"] <= REFUSED * BATCH, seen


@pytest.mark.parametrize("first", seeds(0.1))
def test_the_end_of_a_call_runs_again(first: int) -> None:
    run_batch(check_resumed, first)


@pytest.mark.parametrize("first", seeds(0.1))
def test_an_interrupted_call_leaves_nothing_behind(first: int) -> None:
    run_batch(check_interrupted, first)


@pytest.mark.parametrize("first", seeds(0.1))
def test_what_the_host_computes_is_never_seen(first: int) -> None:
    assert run_batch(check_host, first)["refused"] == 0


def test_kernels_in_which_nothing_is_contracted() -> None:
    """Those of a GPU, where `_bits_of_operators` has them: on any device the bytes of the operators apart."""
    with nothing_contracted():
        for seed in (20260826, 20260833, 20260841):
            error = problem(check_uncontracted, random_program(seed))
            assert error is None, error


def check_uncontracted(program: Program, chance: random.Random) -> None:
    truth = expected(program)
    runs = [every_call(program, choices, truth) for choices in (Choices(), Choices(fusion=False))]
    for turn, (fused, apart) in enumerate(zip(*runs, strict=True)):
        check_same(fused, apart, f"nothing contracted, call {turn}")


def test_a_wrong_result_is_found_and_shrunk() -> None:
    """A planner that forgets a node is caught, and what is shown is small."""
    program = random_program(20260822)

    def broken(program: Program, chance: random.Random) -> None:
        if any(call.operator == program.calls[-1].operator for call in program.calls):
            raise Wrong("seen")

    small = shrunk(program, lambda smaller: problem(broken, smaller) is not None)
    assert len(small.calls) <= 2 < len(program.calls)
