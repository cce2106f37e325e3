"""Sample a corpus of short stories from stories15M: large batches, a static KV cache, a time budget.

The teacher knows 256 tokens. It was trained on windows that start anywhere, so a longer story goes on from a window of
its last 128 tokens; what is still open after `LONGEST` tokens is cut at a sentence end and marked.
Run: python sample_corpus.py --teacher FOLDER --out corpus.txt --minutes 3.5
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from nucleus import draw
from stories import write_stories
from teacher import Teacher
from teacher_tokenizer import BEGIN, END, TeacherTokenizer

LONGEST = 512
TOP_P = 0.95
COOLEST, HOTTEST = 0.7, 1.0
# Most rows start from nothing; these widen the openings of the rest.
OPENINGS_SHARE = 0.3
OPENINGS = (
    "Once upon a time, in a",
    "Once upon a time, there was a boy",
    "Once upon a time, there was an old",
    "One day, a",
    "One day, a girl",
    "One morning,",
    "One sunny day,",
    "One night,",
    "There was once a",
    "There was a little",
    "In a small village",
    "In the forest,",
    "Long ago,",
    "Tom and",
    "Lily and",
    "Ben and",
    "Sara was",
    "Mia had",
    "Max was a",
    "Anna liked",
    "A little bird",
    "A big bear",
    "The cat",
    "The little robot",
    "It was raining",
    "It was a cold",
    "Mom and",
    "Grandma",
    "Every day,",
    "Two friends",
)

Draw = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]


def forced_openings(tokenizer: TeacherTokenizer, batch: int, rng: np.random.Generator) -> np.ndarray:
    """(batch, P) ids, -1 where the teacher is free: BEGIN alone, or BEGIN and one of the openings."""
    encoded = [tokenizer.encode(opening) for opening in OPENINGS]
    forced = np.full((batch, max(map(len, encoded))), -1, dtype=np.int64)
    forced[:, 0] = BEGIN
    for row in np.flatnonzero(rng.random(batch) < OPENINGS_SHARE):
        ids = encoded[rng.integers(len(encoded))]
        forced[row, : len(ids)] = ids
    return forced


@torch.inference_mode()
def tell(teacher: Teacher, known: torch.Tensor, forced: torch.Tensor, draw: Draw, deadline: float) -> torch.Tensor:
    """Fill the window: (batch, K) known ids, then the sampled ones; `forced` (batch, P) overrides where not -1.

    At the deadline it is returned as far as it is filled.
    """
    batch, start = known.shape
    length = teacher.shape.length
    window = torch.zeros(batch, length, dtype=torch.long, device=known.device)
    window[:, :start] = known
    temperature = torch.empty(batch, 1, device=known.device).uniform_(COOLEST, HOTTEST)
    logits = teacher.forward(known, 0)
    for position in range(start, length):
        token = draw(logits, temperature, TOP_P)
        if position < forced.shape[1]:
            token = torch.where(forced[:, position] >= 0, forced[:, position], token)
        window[:, position] = token
        if time.monotonic() > deadline:
            return window[:, : position + 1]
        if position + 1 < length:
            logits = teacher.forward(token[:, None], position)
    return window


def split_at_end(window: np.ndarray, start: int) -> list[tuple[np.ndarray, bool]]:
    """The new ids of each row up to the story's end, and whether it came."""
    ended = (window == BEGIN) | (window == END)
    ended[:, :start] = False
    finished = ended.any(axis=1)
    stop = np.where(finished, ended.argmax(axis=1), window.shape[1])
    return [(row[start:n].astype(np.uint16), bool(done)) for row, n, done in zip(window, stop, finished, strict=True)]


def fast_draw(batch: int, vocabulary: int, device: str) -> Draw:
    """The sampler, compiled for this shape where that works."""
    if device != "cuda":
        return draw
    try:
        compiled: Draw = torch.compile(draw, dynamic=False)
        with torch.inference_mode():
            compiled(torch.randn(batch, vocabulary, device=device).half(), torch.ones(batch, 1, device=device), TOP_P)
        return compiled
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        print(f"torch.compile of the sampler failed, going on without: {error!r}"[:400], flush=True)
        return draw


def sample(args: argparse.Namespace) -> None:
    """Fill the time budget with batches and hand every one to the writer."""
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue(maxsize=8)
    writer = spawn.Process(target=write_stories, args=(queue, args.teacher / "tokenizer.bin", args.out), daemon=True)
    writer.start()

    tokenizer = TeacherTokenizer(args.teacher / "tokenizer.bin")
    dtype = torch.float16 if device == "cuda" else torch.float32
    teacher = Teacher(args.teacher / "stories15M.bin", args.batch, device, dtype)
    sampler = fast_draw(args.batch, teacher.shape.vocabulary, device)
    overlap = teacher.shape.length // 2
    open_stories: list[np.ndarray] = []
    longest_round, rounds = 0.0, 0
    deadline = began + 60 * args.minutes
    while (round_began := time.monotonic()) + longest_round / 2 < deadline:
        if len(open_stories) >= args.batch:
            heads, open_stories = open_stories[: args.batch], open_stories[args.batch :]
            known = torch.from_numpy(np.stack([ids[-overlap:] for ids in heads]).astype(np.int64)).to(device)
            forced = torch.empty(args.batch, 0, dtype=torch.long, device=device)
        else:
            heads = [np.empty(0, dtype=np.uint16)] * args.batch
            forced = torch.from_numpy(forced_openings(tokenizer, args.batch, rng)).to(device)
            known = forced[:, :1]
        window = tell(teacher, known, forced, sampler, deadline).cpu().numpy()

        ready = []
        for head, (ids, finished) in zip(heads, split_at_end(window, known.shape[1]), strict=True):
            story = np.concatenate([head, ids])
            if finished or len(story) >= LONGEST - 1:
                ready.append((story, finished))
            else:
                open_stories.append(story)
        queue.put(ready, timeout=60)
        rounds += 1
        seconds = time.monotonic() - round_began
        longest_round = max(longest_round, seconds)
        speed = (window.size - known.numel()) / seconds / 1e6
        print(
            f"round {rounds}: {speed:.3f} M tokens/s, {len(ready)} stories done, {len(open_stories)} open",
            flush=True,
        )
    queue.put([(story, False) for story in open_stories], timeout=60)
    queue.put(None, timeout=60)
    writer.join(timeout=60)
    count = json.loads(args.out.with_suffix(".json").read_text())
    print(f"{count}, {(time.monotonic() - began) / 60:.2f} minutes", flush=True)


def main() -> None:
    """Read the command line and sample, with a smaller batch if the memory does not do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", type=Path, required=True, help="folder with stories15M.bin and tokenizer.bin")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.5)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            return sample(args)
        except torch.OutOfMemoryError:
            args.batch //= 2
            print(f"out of memory: trying a batch of {args.batch}", flush=True)


if __name__ == "__main__":
    main()
