"""Kernels with a prologue: an expression is computed where an element of one of their tensors is loaded.

Any kernel that says `// composable NAME` of a tensor that it reads takes any expression in the place of its elements,
of operands that broadcast to its shape: where its text indexes the name, a function is called instead. How often an
operator loads an element says its trait `load_times`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from liveshape.errors import PlanError
from liveshape.graph.expression import Expression
from liveshape.kernels.composition import own_library, with_params
from liveshape.kernels.kernel import Binding, Kernel
from liveshape.kernels.pointwise_kernel import named
from liveshape.kernels.pointwise_operands import Operands
from liveshape.kernels.pointwise_text import rounded, statements
from liveshape.kernels.split_bindings import use_segment_functions

PROLOGUE = "prologue_"


@dataclass(frozen=True)
class Prologue:
    """An expression of these operands in the place of what a kernel loads of a binding."""

    loaded: Binding
    expression: Expression
    operands: Operands
    half: bool

    def applied(self, text: str, element: str, width: int) -> str:
        """The text of a kernel whose loads call it; `element` is what the kernel loads, so many at a time."""
        getter = self._getter(element, width)
        text = use_segment_functions(with_params(text, self.operands.fields(self.expression)), self.loaded.name)
        return "\n".join([text, self.operands.functions(), own_library(getter, "loaded_")])

    def _getter(self, element: str, width: int) -> list[str]:
        if width == 4:
            loads, names = self.operands.loads("i")
        else:
            loads, names = self.operands.element_loads("i")
        lines, results = statements(self.expression, names, self.operands.number, self.half)
        # Rounded by hand: compilers may skip what lies between two conversions.
        value = rounded(results[0], self.expression.dtype, self.half)
        given = value if width == 4 else f"({value}).x"
        return [f"fn {self.loaded.name}_at(i: u32) -> {element} {{", *loads, *lines, f"return {element}({given});", "}"]


@lru_cache(maxsize=4096)
def loading(kernel: Kernel, expression: Expression, operands: Operands, half: bool) -> Kernel:
    """A kernel that computes an expression where it loads.

    The first operand is bound in the place of what it loads, others behind its own bindings.

    Example: `loading(SOFTMAX, expression, Operands(("float32",), ("same",), prefix=PROLOGUE), half=True)`.
    """
    places = {binding.name: place for place, binding in enumerate(kernel.bindings)}
    if kernel.loads not in places:
        raise PlanError(f"kernel {kernel.name} takes no prologue: it does not say of what it is composable")
    loaded = kernel.bindings[places[kernel.loads]]
    prologue = Prologue(loaded, expression, operands, half)
    first, *more = [Binding(name, False, alias, loaded.vector) for name, alias in operands.bindings()]
    bindings = (*(first if each is loaded else each for each in kernel.bindings), *more)
    return kernel.derived(
        f"{kernel.name} of {named(expression)}", operands.fields(expression), live=kernel.but_pairs, prologue=prologue,
        bindings=bindings,
    )  # fmt: skip
