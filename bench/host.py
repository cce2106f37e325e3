"""Host time per token before encoding, on a mock device: setting inputs, planning, commands.

Run: python -m bench.host [--layers 4 16 64] [--tokens 400]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from liveshape.llm.engine.engine import TOKEN, Engine
from liveshape.llm.program.token_graph import token_graph
from liveshape.llm.sampling_settings import Sampling
from liveshape.tools.measuring.random_llamas import Shape, llama_graph
from tests.support.paper import PaperDevice

FIRST = 400  # the position of the first measured token


def reduced(layers: int) -> Shape:
    """Llama-3.2-1B with narrow layers: host time depends on the number of nodes, not on their width."""
    return Shape(layers, 256, 512, 8, 4, 32, 4096, 32, 128, 2048)


class Decoding:
    """Decode on a mock device, each step with the token before it still on the device.

    Example: `Decoding(reduced(16)).tokens(400)`.
    """

    def __init__(self, shape: Shape) -> None:
        self.device = PaperDevice()
        self.engine = Engine(token_graph(llama_graph(shape, self.device.limits), {}), self.device)
        self._sampling = Sampling()
        self._pending = self.engine.run([1, 2, 3], 0, self._sampling, [TOKEN])
        self._position = FIRST

    def tokens(self, count: int) -> None:
        """Decode so many tokens."""
        for _ in range(count):
            self.token()

    def token(self) -> None:
        """Decode one token."""
        given = self._pending.on_device(TOKEN)
        self._pending = self.engine.run(given, self._position, self._sampling, [TOKEN])
        self._position += 1


def timed(owner: Any, name: str, spans: dict[str, list[float]], key: str) -> None:
    """Record the time of each call of a method."""
    method: Callable[..., Any] = getattr(owner, name)

    def around(*args: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        result = method(*args, **named)
        spans[key].append(time.perf_counter() - begin)
        return result

    setattr(owner, name, around)


def measure(layers: int, tokens: int) -> list[str]:
    """One row of the table."""
    decoding = Decoding(reduced(layers))
    executor = decoding.engine.executor
    decoding.tokens(20)
    planned, submits = executor.live.planned, decoding.device.counters.submits
    spans: dict[str, list[float]] = {key: [] for key in ("inputs", "plan", "commands", "all")}
    timed(executor, "_set_inputs", spans, "inputs")
    timed(executor.live, "walk", spans, "plan")
    timed(executor.encoder, "commands", spans, "commands")
    timed(decoding, "token", spans, "all")
    decoding.tokens(tokens)
    assert decoding.device.counters.submits - submits == tokens
    medians = [f"{1e6 * statistics.median(times):.0f} us" for times in spans.values()]
    each = (executor.live.planned - planned) / tokens
    return [str(layers), str(len(executor.graph.nodes)), f"{each:.2f}", *medians]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    table = Table(
        "layers",
        "nodes",
        "generators a token",
        "set inputs",
        "plan",
        "commands",
        "all of a token",
        title="Host cost of a token, without encoding (medians)",
    )
    for layers in options.layers:
        table.add_row(*measure(layers, options.tokens))
    Console().print(table)


if __name__ == "__main__":
    main()
