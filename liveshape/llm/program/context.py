"""Context length at load time: resize the KV cache of a graph to more or fewer tokens than it was exported with.

A larger context must be proved correct, node by node: values that depend on the position may only reach operators that
are size-independent, KV caches with a row per position, and RoPE tables that can be recomputed from the file's
parameters. Otherwise it is refused. A smaller context is always correct, and takes less memory where it can.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from liveshape.errors import InputError, LiveshapeError, UnsupportedError
from liveshape.export.decoder.context_parameters import ContextParameters
from liveshape.graph import Graph, Node, Shape, SymInt, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.state import State
from liveshape.graph.traits import Role
from liveshape.llm.program.rotary_tables import changed_frequencies, resized_tables
from liveshape.llm.program.sliding_windows import without_windows
from liveshape.llm.program.token_graph import CONTEXT, MOST_CONTEXT, at_positions, context_of, parameters_of, signature
from liveshape.lower.shape_inference import ShapeInference, substituted

_MOST_ELEMENTS = 1 << 32


def checked_context(context: Any) -> int | None:
    """Validate `max_context`; None is the context length of the file.

    >>> checked_context(4096), checked_context(None)
    (4096, None)
    """
    if context is None:
        return None
    if isinstance(context, bool) or not hasattr(context, "__index__"):
        raise InputError(f"max_context must be a whole number of tokens, {context!r} was given")
    number = int(context.__index__())
    if not 1 <= number <= MOST_CONTEXT:
        raise InputError(f"max_context {number}: a context holds from 1 to {MOST_CONTEXT:,} tokens")
    return number


def larger_context(trained: int | None, tokens: int) -> str:
    """Advice for an error: how to load the model with a context for that many tokens.

    >>> larger_context(8192, 3000)
    'load the model with --max-context 4096 (load(max_context=4096)): it was trained for 8,192 tokens'
    """
    if trained is None:
        return "export the model with a larger context (--max-context)"
    enough = 1 << tokens.bit_length()
    enough = min(enough, trained) if tokens < trained else enough
    poor = ", and text beyond that will be poor" if tokens >= trained else ""
    asked = f"--max-context {enough} (load(max_context={enough}))"
    return f"load the model with {asked}: it was trained for {trained:,} tokens{poor}"


def rotation_of(constants: dict[str, Any], context: int) -> bytes:
    """Bytes that identify RoPE scaling for a context, if it differs from the file's; for the checksum.

    Example: `rotation_of(constants_of(program), 4096)`.
    """
    parameters, own = parameters_of(constants), constants.get(CONTEXT)
    return changed_frequencies(parameters, own, context) if isinstance(own, int) else b""


def with_context(graph: Graph, constants: dict[str, Any], context: int | None) -> Graph:
    """Resize the KV caches of a lowered graph to `context` tokens, or to what the file says.

    Example: `program.graph("forward", lambda graph: with_context(graph, constants_of(program), 8192))`.
    """
    tokens, position, _ = signature(graph, constants)
    states = at_positions(graph, position)
    now = context_of(constants, tokens, states)
    wanted = now if context is None else context
    graph = without_windows(graph, tokens, position, wanted)
    if wanted == now or not states:
        return graph
    parameters = parameters_of(constants)
    try:
        # The longest chunk is planned even where the context is shorter; and it needs one more position after it.
        return _Resize(graph, position, wanted, max(wanted, tokens.max_shape[1] + 1), parameters).resized_graph()
    except LiveshapeError as error:
        if wanted < now:
            return graph  # the caches keep their size, and the rest stays unused
        raise UnsupportedError(
            f"a context of {wanted:,} tokens: this program was made for {now:,}, and {error}; "
            f"export the model again, with --max-context {wanted}"
        ) from error


class _Resize:
    """Propagates new KV cache sizes (`rows`) through a graph: which values depend on the position, and their bounds."""

    def __init__(
        self, graph: Graph, position: Tensor, context: int, rows: int, parameters: ContextParameters | None
    ) -> None:
        states = at_positions(graph, position)
        opaque = next((state for state in states if state.axis is None), None)
        if opaque is not None:
            raise UnsupportedError(f"its state {opaque.tensor.name} is not known to be rows at positions")
        if parameters is not None and parameters.largest is not None and context > parameters.largest:
            raise UnsupportedError(f"it has no masks for the model's sliding window of {parameters.largest:,} tokens")
        self.replacements: dict[Value, Value] = {state.tensor: _resized(state, rows) for state in states}
        self.caches = set(self.replacements.values())
        self.rows = rows
        self.replacements |= resized_tables(graph, context, rows, parameters)
        self.graph = substituted(graph, self.replacements)
        self.position = position
        # At the first and last position: dimensions that differ grow with the context.
        self.ends = ShapeInference(0), ShapeInference(rows - _most_tokens(graph))
        self.position_dependent: set[Value] = {position}

    def resized_graph(self) -> Graph:
        """The resized graph; raises with the node that prevents it."""
        for node in self.graph.nodes:
            known = any(value in self.position_dependent or value in self.caches for value in node.inputs)
            if known or all(isinstance(value, SymInt) for value in node.written):
                for end in self.ends:
                    end.run(node)
            if known:
                self._propagate(node)
        outside = next((value for value in self.graph.outputs if value in self.position_dependent), None)
        if outside is not None:
            raise UnsupportedError(f"it gives {outside.name}, which is as long as the context")
        longer: dict[Value, Value] = {}
        for value in self.position_dependent:
            if isinstance(value, Tensor) and value is not self.position:
                longer[value] = replace(value, max_shape=self._bound(value))
        return substituted(self.graph, longer)

    def _propagate(self, node: Node) -> None:
        """Propagate position dependence to a node's outputs; raises where it may be correct only up to a bound."""
        read = [value for value in node.inputs if value in self.position_dependent]
        if node.traits.any_size and not any(isinstance(value, Tensor) for value in node.outputs):
            self.position_dependent.update(node.outputs)
            return
        if node.cache_axes or node.traits.tables is not None:
            self._check_constants(node)
        elif node.traits.role is Role.SLICE:
            self._check_slice(node)
        elif (gathered := node.gathered(node.args)) is not None and gathered[0] in self.position_dependent:
            self._check_table(node, gathered[1], 0)
        elif not node.traits.any_size:
            raise UnsupportedError(f"{node.label} may not be right at other positions")
        for value in node.outputs:
            floats = isinstance(value, Tensor) and value.dtype.startswith(("float", "bfloat"))
            grows = isinstance(value, Tensor) and self._grows(value)
            counts = any(isinstance(each, Tensor) and each.dtype.startswith(("int", "uint")) for each in read)
            if grows or not floats:
                self.position_dependent.add(value)
            elif floats and counts and node.traits.any_size:
                raise UnsupportedError(f"{node.label} makes floats of positions")

    def _grows(self, tensor: Tensor) -> bool:
        near, far = (end.of(tensor).shape for end in self.ends)
        return bool(near != far)

    def _bound(self, tensor: Tensor) -> Shape:
        """max_shape with the dimensions that grow with the context set to all of it."""
        near, far = (end.of(tensor).shape for end in self.ends)
        shape = tuple(
            max(self.rows, more) if size != more else most
            for size, more, most in zip(near, far, tensor.max_shape, strict=True)
        )
        _check_elements(tensor, shape)
        return shape

    def _check_constants(self, node: Node) -> None:
        """Constant masks and tables must cover all positions."""
        known = set(self.replacements.values())
        for value in node.inputs:
            if isinstance(value, Tensor) and value.constant is not None and value not in known:
                self._check_table(node, value, value.rank - 1 if node.traits.tables is None else 0)

    def _check_slice(self, node: Node) -> None:
        source, axis, start, end, step = node.args[:5]
        if source in self.caches:
            if (start, step) != (0, 1):
                raise UnsupportedError(f"{node.label} takes a part of a cache")
        elif source in self.position_dependent and (start, step) == (0, 1) and end in self.position_dependent:
            for side in self.ends:
                if side.of(end).value > side.of(source).shape[axis]:
                    raise UnsupportedError(f"{node.label} takes more than there is")
        elif (
            source.constant is not None
            and source not in self.position_dependent
            and step == 1
            and isinstance(end, SymInt)
        ):
            self._check_table(node, source, axis)
        else:
            raise UnsupportedError(f"{node.label} takes a part of what is as long as the context")

    def _check_table(self, node: Node, table: Any, axis: int) -> None:
        if not isinstance(table, Tensor) or table.constant is None:
            raise UnsupportedError(f"{node.label} picks what is not data of the file by positions")
        if table.max_shape[axis] < self.rows:
            raise UnsupportedError(f"the table of {node.label} ends at position {table.max_shape[axis]:,}")


def _resized(state: State, rows: int) -> Tensor:
    tensor, axis = state.tensor, state.axis
    assert axis is not None
    shape = (*tensor.max_shape[:axis], rows, *tensor.max_shape[axis + 1 :])
    _check_elements(tensor, shape)
    # No row is read before it is written, so no initial value is needed.
    return replace(tensor, max_shape=shape, constant=None)


def _check_elements(tensor: Tensor, shape: Shape) -> None:
    if prod(shape) >= _MOST_ELEMENTS:
        raise UnsupportedError(f"{tensor.name} would be {shape}, which is {prod(shape):,} elements, 2**32 or more")


def _most_tokens(graph: Graph) -> int:
    return max(value.max_shape[1] for value in graph.inputs if isinstance(value, Tensor) and value.rank == 2)


__all__ = ["checked_context", "larger_context", "with_context"]
