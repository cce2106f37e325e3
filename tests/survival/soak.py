"""Many decode steps with cuts, resets, forks, saves and restores between them: memory stays flat, and now and then a
fresh process is asked whether it would give the same.

Run: python -m tests.survival.soak --steps 20000
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.device.backends import open_device
from tests.survival.subjects import DRAWN, ROOT, live_bytes, tiny_model

_SETTLED = 0.05  # of all steps, 1,000 of 20,000: until then memory may still come
_SAMPLES = 20
_FLAT = 1.01


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise OSError("this system does not say how much memory a process has")


class Soak:
    """A model and two forks that come and go. Every text goes on by what the model draws."""

    def __init__(self, folder: Path) -> None:
        self.model, self.file = tiny_model(open_device()), folder / "soak.cache"
        self.texts = [self.model]
        self.draw = random.Random(3)
        self.steps = 0
        self._fill()

    def _fill(self) -> None:
        """The longest texts, the largest copies: memory that comes with their first use and then stays."""
        for _ in range(2):
            self.texts.append(self.model.fork())
        for _ in range(2):
            for text in self.texts:
                text.prefill([1] * (text.max_context - text.position))
                text.logits()
        self.model.save(self.file)
        self.model.restore(self.file)
        for text in self.texts:
            text.reset()

    def turn(self) -> None:
        """Something, and a few decode steps behind it."""
        draw, texts = self.draw, self.texts
        text = draw.choice(texts)
        chance = draw.random()
        if chance < 0.05:
            text.reset()
        elif chance < 0.20:
            text.truncate(draw.randint(0, text.position))
        elif chance < 0.30:
            made = text.fork()
            if len(texts) == 3:
                gone = texts.pop(draw.randint(1, 2))
                if draw.random() < 0.5:
                    gone.close()
            text = made
            texts.append(made)
        elif chance < 0.33:
            text.save(self.file)
        elif chance < 0.36:
            text.restore(self.file)
        count = draw.randint(1, 12)
        if text.position + count + 4 > text.max_context:
            text.truncate(draw.randint(0, 40))
        if not text.position or draw.random() < 0.3:
            text.prefill([draw.randrange(text.vocab_size) for _ in range(draw.randint(1, 3))])
        stream = text.stream([], DRAWN, max_tokens=None if draw.random() < 0.2 else count)
        for _ in range(count):
            next(stream)
        stream.close()
        self.steps += count

    def question(self) -> tuple[list[int], Any]:
        """Tokens, and the logits after them."""
        text = self.draw.choice(self.texts)
        if not text.position:
            text.prefill([self.draw.randrange(text.vocab_size)])
        return list(text.tokens), text.logits()


def answers(questions: list[list[int]]) -> list[Any]:
    """The logits after each text, of a model that never did anything else."""
    model = tiny_model(open_device())
    found = []
    for tokens in questions:
        model.reset()
        model.prefill(tokens)
        found.append(model.logits().tolist())
    return found


def answers_of_a_fresh_process(questions: list[list[int]]) -> list[Any]:
    code = "import json, sys; from tests.survival.soak import answers; print(json.dumps(answers(json.load(sys.stdin))))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=json.dumps(questions), capture_output=True, text=True, check=True
    )
    return [np.array(each, np.float32) for each in json.loads(done.stdout.splitlines()[-1])]


def soak(steps: int, folder: Path) -> dict[str, Any]:
    """The figures; an AssertionError if a result is wrong."""
    subject, begin = Soak(folder), time.perf_counter()
    asked: list[tuple[list[int], Any]] = []
    resident: list[int] = []
    live: list[int] = []
    marks = [round(steps * (_SETTLED + (1 - _SETTLED) * place / _SAMPLES)) for place in range(_SAMPLES + 1)]
    while subject.steps < steps:
        subject.turn()
        if marks and subject.steps >= marks[0]:
            del marks[0]
            asked.append(subject.question())
            gc.collect()
            resident.append(resident_bytes())
            live.append(_without_forks(subject))
    seconds = time.perf_counter() - begin
    for (tokens, got), expected in zip(asked, answers_of_a_fresh_process([each for each, _ in asked]), strict=True):
        np.testing.assert_allclose(got, expected, 1e-3, 1e-4, err_msg=f"after {tokens}")
    return {
        "steps": subject.steps,
        "seconds": round(seconds, 1),
        "compared with a fresh process": len(asked),
        "resident": [resident[0], max(resident), resident[-1]],
        "live": [live[0], max(live), live[-1]],
    }


def _without_forks(subject: Soak) -> int:
    """Live bytes of the model alone: how long the copies of a fork are depends on its text."""
    for fork in subject.texts[1:]:
        fork.close()
    del subject.texts[1:]
    return live_bytes(subject.model.device)


def check(found: dict[str, Any]) -> None:
    """Memory is flat from the first sample on."""
    for what in ("resident", "live"):
        first, most, _ = found[what]
        assert most <= _FLAT * first, f"{what} bytes grew from {first:,} to {most:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=20000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(options.steps, Path(folder))
    print(json.dumps(found), flush=True)
    check(found)


if __name__ == "__main__":
    main()
