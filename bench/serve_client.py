"""Clients of a server on loopback, in a process of their own: what they see, as JSON. `bench.serve` starts it.

Run: python -m bench.serve_client PORT decode|first|gap|shared [--sequences 64] [--prompt 256] [--tokens 256]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

ASKED = 16  # requests whose time to the first token is measured
RUNNING = 1 << 10  # tokens of those that run beside them


@dataclass
class Answer:
    """When a request was sent, and when how many tokens came."""

    begun: float
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @property
    def first(self) -> float:
        return self.times[0] - self.begun

    def gaps(self, start: float, stop: float) -> list[float]:
        """Seconds between its tokens in a span of time."""
        inside = [each for each in self.times if start <= each <= stop]
        return [after - before for before, after in pairwise(inside)]


async def ask(port: int, prompt: Sequence[int], tokens: int, answer: Answer | None = None) -> Answer:
    """Stream a completion; `answer` is filled while it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    asked = {"prompt": list(prompt), "max_tokens": tokens, "temperature": 0, "stream": True}
    body = json.dumps(asked).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    answer = Answer(0.0) if answer is None else answer
    answer.begun = time.perf_counter()
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    if b" 200 " not in await reader.readline():
        raise RuntimeError((await reader.read(1000)).decode())
    async for line in reader:
        if line.startswith(b"data: {"):
            answer.times.append(time.perf_counter())
            answer.counts.append(len(json.loads(line[6:])["choices"][0]["text"].split()))
        elif line.startswith(b"data: [DONE]"):
            break
    writer.close()
    return answer


def prompts(count: int, length: int, seed: int) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(1, 1000, length).tolist() for _ in range(count)]


async def decode(port: int, sequences: int, prompt: int, tokens: int) -> dict[str, Any]:
    """Tokens per second in all while all decode."""
    answers = await asyncio.gather(*(ask(port, each, tokens) for each in prompts(sequences, prompt, 1)))
    start, stop = max(each.times[0] for each in answers), min(each.times[-1] for each in answers)
    pairs = [pair for each in answers for pair in zip(each.times, each.counts, strict=True)]
    return {"decode": sum(count for moment, count in pairs if start < moment <= stop) / (stop - start)}


async def first(port: int, sequences: int, prompt: int, tokens: int) -> dict[str, Any]:
    """The time to the first token of one more, while the others run."""
    others = [asyncio.create_task(ask(port, each, RUNNING)) for each in prompts(sequences - 1, prompt, 2)]
    await ask(port, prompts(1, prompt, 3)[0], 4)
    found = [(await ask(port, each, 4)).first for each in prompts(ASKED, prompt, 4)]
    ran = sum(not each.done() for each in others)
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return {"first": statistics.median(found), "worst": max(found), "running": ran}


async def gap(port: int, sequences: int, prompt: int, tokens: int) -> dict[str, Any]:
    """The longest gap between tokens of those that run, while a prompt of so many tokens arrives."""
    answers = [Answer(0.0) for _ in range(sequences - 1)]
    begun = prompts(sequences - 1, 64, 5)
    others = [
        asyncio.create_task(ask(port, each, RUNNING, answer)) for each, answer in zip(begun, answers, strict=True)
    ]
    while any(len(each.times) < 8 for each in answers):
        await asyncio.sleep(0.01)
    long = await ask(port, prompts(1, prompt, 6)[0], 4)
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    found = [each for answer in answers for each in answer.gaps(long.begun, long.times[0])]
    return {"gap": max(found), "first": long.first}


async def shared(port: int, sequences: int, prompt: int, tokens: int) -> dict[str, Any]:
    """Prefill of prompts with one beginning: of the first alone, and of all."""
    (common,) = prompts(1, prompt, 7)
    tails = prompts(sequences, 8, 8)
    alone = await ask(port, [*common, *tails[0]], tokens)
    (other,) = prompts(1, prompt, 9)
    answers = await asyncio.gather(*(ask(port, [*other, *tail], tokens) for tail in tails))
    begun = min(each.begun for each in answers)
    return {"alone": alone.first, "all": max(each.times[0] for each in answers) - begun}


SCENES = {"decode": decode, "first": first, "gap": gap, "shared": shared}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    given = parser.parse_args()
    found = asyncio.run(SCENES[given.scene](given.port, given.sequences, given.prompt, given.tokens))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
