"""From the teacher's ids to clean text on disk: one story per record, in a process of its own beside the GPU loop."""

from __future__ import annotations

import json
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
from teacher_tokenizer import TeacherTokenizer

SEPARATOR = "<|endoftext|>"
# Closes a story that the sampler had to cut: the student is never asked to predict it.
UNFINISHED = "<|unfinished|>"
SHORTEST = 120
# Typographic quotes, dashes, ellipsis and space, which would cost the small vocabulary pieces.
PLAIN = {0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'", 0x2013: "-", 0x2014: "-", 0x2026: "...", 0xA0: " "}

Batch = list[tuple[np.ndarray, bool]]


def clean(text: str, finished: bool) -> str | None:
    """The story as a record, or None if it is not worth learning.

    >>> clean("Tom ran home and" + " ran" * 40 + ". He was", finished=False)[-20:]
    'ran. <|unfinished|>'
    """
    text = "\n".join(line.strip() for line in text.translate(PLAIN).split("\n")).strip()
    if not finished:
        text = text[: max(text.rfind(mark) for mark in ".!?") + 1]
        # A sentence may end inside a quotation: keep the quotes balanced.
        text += '"' * (text.count('"') % 2)
    if len(text) < SHORTEST or not text.isascii() or "<" in text or not text.rstrip('"').endswith((".", "!", "?")):
        return None
    return text if finished else f"{text} {UNFINISHED}"


def write_stories(queue: Queue[Batch | None], tokenizer: Path, target: Path) -> None:
    """Take (ids, finished) lists from the queue until None; append records to `target`, counts to `target`.json."""
    vocabulary = TeacherTokenizer(tokenizer)
    count = {"stories": 0, "finished": 0, "dropped": 0, "bytes": 0}
    with target.open("wb") as file:
        while (batch := queue.get()) is not None:
            for ids, finished in batch:
                story = clean(vocabulary.decode(np.asarray(ids).tolist()), finished)
                if story is None:
                    count["dropped"] += 1
                    continue
                count["stories"] += 1
                count["finished"] += finished
                count["bytes"] += file.write(f"{story}\n{SEPARATOR}\n".encode())
            file.flush()
            target.with_suffix(".json").write_text(json.dumps(count))
