"""The graph of a language model's `forward` with sampling, and the metadata of its file.

A tail is appended: the token history by position (for the penalties), and the sampling operator on the logits
of the last token or the last few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from liveshape import ops
from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.decoder.context_parameters import METHOD, ContextParameters
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.state import State, states_of
from liveshape.graph.traits import Role
from liveshape.llm.program.hoist_last_rows import hoist_last_rows
from liveshape.llm.program.last_logits import keep_last_logits
from liveshape.lower.cse import share_subexpressions
from liveshape.metadata import is_constant
from liveshape.ops import sampling, symint
from liveshape.program.program import Program

TOKEN, LOGITS = 0, 1  # the outputs of the graph
SETTINGS = (
    "active",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "prompt_tokens",
    "seed",
)
MOST_ROWS = 16  # the most rows that a call samples after
CONTEXT = "get_max_context_len"  # the method that returns the context length
LENGTH = "get_max_seq_len"  # and that of the longest prefill chunk
MOST_CONTEXT = (1 << 31) - 1  # positions are kept in 32 bits
_FLOATS = ("float32", "float16")
_INTEGERS = ("int64", "int32")


@dataclass(frozen=True)
class Description:
    """Metadata of a model: longest chunk, context length, vocabulary size and special tokens."""

    max_seq_len: int
    max_context: int
    trained_context: int | None  # trained context length, up to which this file can be loaded; None if unknown
    vocab_size: int
    eos_ids: tuple[int, ...]
    bos_id: int | None
    logit_rows: int  # the most tokens of a call, its last ones, that have logits
    sampled_rows: int  # the most of these that are sampled after


@dataclass(eq=False)
class TokenGraph:
    """`forward` with the sampling tail; the sampling settings are live scalars of their own.

    `sample_node` is the index of the sampling node. It can be resumed alone after a call, since its inputs are still
    valid: the logits are an output, and the history is state. The nodes before it read graph inputs, whose memory may
    have been reused by then.
    """

    graph: Graph
    tokens: Tensor
    position: Tensor
    logits: Tensor
    history: Tensor
    states: tuple[State, ...]  # what outlives a call; with an axis only where a row is at the position of its token
    settings: dict[str, SymInt]
    rows: SymInt  # how many of the last tokens are sampled after; 1 at first
    sample_node: int
    description: Description


def constants_of(program: Program) -> dict[str, Any]:
    """The metadata methods of a program (those that only return constants) and their values.

    Example: `constants_of(program)["get_max_seq_len"]`.
    """
    found: dict[str, Any] = {}
    for plan in program.file.plans:
        if is_constant(plan):
            values = [
                getattr(value, "tolist", lambda value=value: value)() for value in program.load_method(plan.name)()
            ]
            found[plan.name] = values[0] if len(values) == 1 else values
    return found


def token_graph(graph: Graph, constants: dict[str, Any]) -> TokenGraph:
    """Check that a graph is a language model with a KV cache, and append the sampling tail.

    Example: `token_graph(lower(program.file, "forward", program.data), constants_of(program))`.
    """
    tokens, position, logits = signature(graph, constants)
    rows = SymInt("rows", 1)
    graph, logits = keep_last_logits(graph, logits, rows, min(MOST_ROWS, tokens.max_shape[1]))
    graph = hoist_last_rows(graph)
    states = at_positions(graph, position)
    description = describe(constants, tokens, logits, states)
    if not states:
        raise UnsupportedError(
            f"{graph.name} keeps no state between calls; a language model must be exported with its cache in the graph"
        )
    values: list[Value] = []
    nodes: list[Node] = []

    def keep(value: Any) -> Any:
        values.append(value)
        return value

    def add(operator: Callable[..., Any], *args: Any) -> Any:
        entry = ops.defined_by(operator)
        nodes.append(entry.bind(len(graph.nodes) + len(nodes), f"{entry.name} (after {graph.name})", args))
        return args[-1]

    # At least as long as the longest chunk, which is planned even where the context is shorter.
    history = keep(Tensor("history", "int32", (1, max(description.max_context, tokens.max_shape[1]))))
    settings = {name: keep(SymInt(name)) for name in SETTINGS}
    begin = add(symint.select_as_symint, position, 0, 0, keep(SymInt("position")))
    count = add(symint.sym_size, tokens, 1, keep(SymInt("tokens of the call")))
    add(sampling.record, tokens, begin, history, None)
    length = add(symint.add, begin, count, keep(SymInt("tokens so far")))
    token = keep(Tensor("token", "int32", (1, description.sampled_rows)))
    add(sampling.sample, logits, history, length, rows, *settings.values(), token)
    known = dict.fromkeys((*graph.values, rows, *values))
    extended = share_subexpressions(
        replace(graph, nodes=(*graph.nodes, *nodes), values=tuple(known), outputs=(token, logits))
    )
    return TokenGraph(
        extended,
        tokens,
        position,
        logits,
        history,
        at_positions(extended, position),
        settings,
        rows,
        len(extended.nodes) - 1,
        description,
    )


def signature(graph: Graph, constants: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors of tokens, positions and logits; raises if the signature is not that of a language model.

    Example: `tokens, position, logits = signature(graph, constants_of(program))`.
    """
    found = [value for value in graph.inputs if isinstance(value, Tensor) and value.dtype in _INTEGERS]
    tokens = [value for value in found if value.rank == 2 and value.max_shape[0] == 1]
    positions = [value for value in found if value.rank == 1]
    logits = [value for value in graph.outputs if isinstance(value, Tensor) and value.dtype in _FLOATS]
    fits = len(graph.inputs) == 2 and len(tokens) == len(positions) == 1
    if fits:
        fits = positions[0].max_shape[0] in (1, tokens[0].max_shape[1])
    if not fits or len(logits) != 1 or logits[0].rank not in (2, 3) or logits[0].max_shape[0] != 1:
        given = ", ".join(_text(value) for value in graph.inputs)
        gives = ", ".join(_text(value) for value in graph.outputs)
        hint = "; it has no cache: export with use_kv_cache" if constants.get("use_kv_cache") is False else ""
        raise UnsupportedError(
            f"{graph.name} is not that of a language model with a cache: it takes ({given}) and gives ({gives}); "
            f"expected are tokens int64 [1, S], positions int64 [1] or [S], and logits [1, V] or [1, S, V]{hint}"
        )
    if tokens[0].static and tokens[0].max_shape[1] > 1:
        raise UnsupportedError(
            f"{graph.name} takes exactly {tokens[0].max_shape[1]} tokens; export with a dynamic sequence length"
        )
    return tokens[0], positions[0], logits[0]


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.max_shape)}"
    return "a number" if isinstance(value, SymInt) else repr(value)


def at_positions(graph: Graph, position: Tensor) -> tuple[State, ...]:
    """The states of a graph, with an axis only where rows are written from `position[0]` on (positional).

    Rows written elsewhere, as in a ring buffer, are not at the positions of their tokens: such a state is opaque.

    Example: `all(state.axis is not None for state in at_positions(graph, position))`.
    """
    is_position = is_position_of(graph, position)
    return tuple(
        state if all(is_position(start) for start in state.starts) else State(state.tensor)
        for state in states_of(graph)
    )


def is_position_of(graph: Graph, position: Tensor) -> Callable[[Any], bool]:
    """A function that tells whether a value is `position[0]`, by the nodes that make it.

    Example: `is_position_of(graph, position)(node.cache_start)`.
    """
    writers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.written:
            writers.setdefault(value, []).append(node)

    def is_position(value: Any) -> bool:
        for _ in graph.nodes:
            makers = writers.get(value, []) if isinstance(value, Value) else []
            if value is position or len(makers) != 1:
                break
            (node,) = makers
            role = node.traits.role
            at_start = role is Role.SELECT and isinstance(node.named["index"], int) and node.named["index"] == 0
            if not (node.alias or at_start or role is Role.FIRST):
                break
            value = node.args[0]
        return value is position and position not in writers

    return is_position


def describe(constants: dict[str, Any], tokens: Tensor, logits: Tensor, states: Sequence[State]) -> Description:
    """The metadata of a model, from its file and its signature.

    Example: `describe(constants_of(program), tokens, logits, at_positions(graph, position)).max_context`.
    """
    bound = tokens.max_shape[1]
    width = logits.max_shape[-1]
    longest = min(_number(constants, LENGTH, bound), bound)
    given = min(prod(logits.max_shape[:-1]), longest)
    ends = constants.get("get_eos_ids", constants.get("get_eos_id", []))
    begin = constants.get("get_bos_id")
    parameters = parameters_of(constants)
    return Description(
        max_seq_len=longest,
        max_context=context_of(constants, tokens, states),
        trained_context=None if parameters is None else parameters.reach,
        vocab_size=min(_number(constants, "get_vocab_size", width), width),
        eos_ids=tuple(int(end) for end in (ends if isinstance(ends, list) else [ends])),
        bos_id=None if begin is None or int(begin) < 0 else int(begin),
        logit_rows=given,
        sampled_rows=min(given, MOST_ROWS),
    )


def _number(constants: dict[str, Any], name: str, otherwise: int) -> int:
    value = constants.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FormatError(f"{name} of the program gives {value!r}; a number above 0 is expected")
    return value


def parameters_of(constants: dict[str, Any]) -> ContextParameters | None:
    """The parameters for other context lengths (RoPE, windows), if the file has them.

    Example: `parameters_of(constants_of(program)).trained`.
    """
    return ContextParameters.read(constants[METHOD]) if METHOD in constants else None


def context_of(constants: dict[str, Any], tokens: Tensor, states: Sequence[State]) -> int:
    """The context length of a program: what its file says, at most the rows of its KV caches.

    Example: `context_of(constants_of(program), tokens, at_positions(graph, position))`.
    """
    rows = [state.tensor.max_shape[state.axis] for state in states if state.axis is not None]
    return min(_number(constants, CONTEXT, _context(states, tokens.max_shape[1])), *rows, MOST_CONTEXT)


def _context(states: Sequence[State], bound: int) -> int:
    """The context length if the file does not say: the rows of its KV caches, or a dimension that all states share and
    that holds a chunk."""
    rows = [state.tensor.max_shape[state.axis] for state in states if state.axis is not None]
    sizes = [set(state.tensor.max_shape[:-1]) for state in states if state.tensor.rank >= 3]
    shared = set.intersection(*sizes) if sizes else set()
    return min(rows, default=max((size for size in shared if size >= bound), default=bound))
