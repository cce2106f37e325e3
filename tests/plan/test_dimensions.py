"""Which dimensions may be smaller: those that the program plans with, and the results that follow them."""

from __future__ import annotations

from liveshape.plan.compiling import compile
from liveshape.plan.dimensions import dynamic_dimensions
from tests.plan.test_engine import add, rms
from tests.support.chains import Chain


def test_a_dimension_that_has_the_size_of_another_is_tried_by_itself() -> None:
    chain = Chain()
    x = chain.input((3, 8, 8))
    y = rms(chain, x)
    assert dynamic_dimensions(compile(chain.graph(y))) == {x: (0, 1), y: (0, 1)}


def test_dimensions_that_only_move_together_are_tried_together() -> None:
    chain = Chain()
    a, b = chain.input((1, 43, 8)), chain.input((1, 43, 8))
    y = rms(chain, add(chain, a, b))
    assert dynamic_dimensions(compile(chain.graph(y))) == {a: (1,), b: (1,), y: (1,)}
