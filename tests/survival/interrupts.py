"""Real timer interrupts over methods, texts and loading: the next call is right, no hang, no memory left.

Run: python -m tests.survival.interrupts --count 500

Half of them with the raw C calls of the library, half with its public ones, each half in a process of its own, so that
a hang or an abort is found by whoever started it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.device.backends import open_device
from liveshape.llm.language_model import LanguageModel
from tests.device.interrupts import at_work
from tests.survival.subjects import LENGTHS, ROOT, STORY, Block, Text, live_bytes, tiny_model
from tests.survival.timer import Timer


def over_method(timer: Timer, count: int) -> None:
    """`execute` at changing shapes."""
    block, end = Block(open_device()), timer.count + count
    before = live_bytes(block.device)
    while timer.count < end:
        length, other = timer.draw.choices(LENGTHS, k=2)
        timer.over(f"execute of {length}", lambda length=length: block.call(length))
        block.call(other)
    _no_more_than(before, live_bytes(block.device), "execute")


def over_text(timer: Timer, count: int, model: LanguageModel, folder: Path) -> None:
    """Everything that a model does between load and close."""
    with model:
        text, draw, end = Text(model, folder), timer.draw, timer.count + count
        before = live_bytes(model.device)
        while timer.count < end:
            action = draw.choice(text.actions())
            timer.over(action.__name__, lambda action=action: action(draw))
            text.check()
            if draw.random() < 0.2:
                text.follows()
            if text.forks and draw.random() < 0.3:
                text.check(draw.choice(text.forks))
        text.leave()
        _no_more_than(before, live_bytes(model.device), "texts")
        text.file.unlink(missing_ok=True)
        left = [file.name for file in folder.iterdir()]
        assert not left, f"a save left {left}"


def over_load(timer: Timer, count: int) -> None:
    """Loading a method and a model; one that came through is closed."""
    block, end, loaded = Block(open_device()), timer.count + count, []
    device = block.device
    before = live_bytes(device)

    def load_model() -> None:
        loaded.append(LanguageModel.load(STORY))

    def load_method() -> None:
        block.load()

    while timer.count < end:
        timer.over("load of a method", load_method)
        block.call(timer.draw.choice(LENGTHS), block.load())
        if timer.draw.random() < 0.3:
            timer.over("load of a model", load_model)
            for model in loaded:
                model.close()
            loaded.clear()
            with LanguageModel.load(STORY) as model:
                model.prefill([5])
                assert 0 <= model.next_token() < model.vocab_size
    _no_more_than(before, live_bytes(device), "loading")


def over_long_prefill(timer: Timer) -> bool:
    """Whether an interrupt comes through while the device computes; the text is right afterwards.

    The prompts are longer and the signals earlier from turn to turn, so that at last one is there before the results.
    """
    with LanguageModel.load(STORY) as model:
        for turn in range(12):
            length = min(8 << turn, model.max_seq_len)
            ids = [(7 * place + 3) % model.vocab_size for place in range(length)]
            model.reset()
            model.prefill(ids)
            expected = model.logits()
            model.reset()
            model.prefill(ids)
            came = False
            try:
                with timer.armed(0.1 / (1 << turn)):
                    model.logits()
            except KeyboardInterrupt:
                came = at_work(model.device)
            np.testing.assert_allclose(model.logits(), expected, 1e-3, 1e-4)
            if came:
                return True
    return not model.device.adapter.software  # a GPU may be too quick for any signal


def _no_more_than(before: int, after: int, what: str) -> None:
    assert after <= before, f"{what}: {before:,} bytes were live at the beginning, {after:,} are at the end"


def one_way(count: int, seed: int) -> dict[str, Any]:
    """All of it in this process."""
    timer = Timer(seed)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        over_method(timer, 2 * count // 5)
        over_load(timer, count // 5)
        over_text(timer, count // 5, tiny_model(open_device()), Path(folder))
        over_text(timer, count - timer.count, LanguageModel.load(STORY), Path(folder))
    came = over_long_prefill(timer)
    return {
        **timer.seen,
        "seconds": time.perf_counter() - begin,
        "latest": timer.latest,
        "came through while the device computed": came,
    }


def apart(way: str, count: int, seed: int, seconds: float) -> dict[str, Any]:
    """One way in a process of its own; a hang or an abort is an error here."""
    command = [sys.executable, "-m", "tests.survival.interrupts", "--way", way, "--count", str(count)]
    command += ["--seed", str(seed), "--seconds", str(seconds)]
    environment = {**os.environ, "LIVESHAPE_RAW": "1" if way == "raw" else "0"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, timeout=seconds, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{way}: {done.returncode}: {done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=["raw", "public"])
    parser.add_argument("--seconds", type=float, default=3000, help="after which a process counts as hanging")
    options = parser.parse_args()
    if options.way:
        faulthandler.dump_traceback_later(0.95 * options.seconds)  # who hangs says where
        print(json.dumps(one_way(options.count, options.seed)), flush=True)
        return
    total = Counter[str]()
    for way, count in (("raw", options.count // 2), ("public", options.count - options.count // 2)):
        found = apart(way, count, options.seed, options.seconds)
        print(way, json.dumps(found, indent=1))
        total.update({name: found.get(name, 0) for name in ("interrupted", "swallowed")})
    print("in all", dict(total))


if __name__ == "__main__":
    main()
