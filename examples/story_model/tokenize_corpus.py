"""Train the byte-level BPE on a part of the corpus, then turn all of it into uint16 ids with every core.

Run: python tokenize_corpus.py --corpus corpus.txt --work FOLDER
Writes FOLDER/tokenizer.json, FOLDER/train.bin and FOLDER/validation.bin.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from stories import SEPARATOR, UNFINISHED
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

# The trainer gives the special tokens the first ids, in this order.
END_ID, UNFINISHED_ID = 0, 1
RECORD_END = f"\n{SEPARATOR}\n".encode()
CHUNK_BYTES = 4 << 20
VALIDATION_SHARE = 0.01


def chunks(corpus: Path, limit: int | None = None) -> Iterator[list[str]]:
    """The records of the corpus, a few megabytes at a time; an unfinished last record is left out."""
    rest, read = b"", 0
    with corpus.open("rb") as file:
        while (data := file.read(CHUNK_BYTES)) and (limit is None or read < limit):
            read += len(data)
            *records, rest = (rest + data).split(RECORD_END)
            yield [record.decode() for record in records]


def train_tokenizer(corpus: Path, vocabulary: int, sample_bytes: int) -> Tokenizer:
    """A byte-level BPE in GPT-2's manner; encoding puts <|endoftext|> in front, as the model starts every story."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[SEPARATOR, UNFINISHED],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text.replace(UNFINISHED, "") for chunk in chunks(corpus, sample_bytes) for text in chunk)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SEPARATOR} $A", pair=f"{SEPARATOR} $A {SEPARATOR} $B", special_tokens=[(SEPARATOR, END_ID)]
    )
    return tokenizer


_tokenizer: Tokenizer | None = None


def _start_worker(path: str) -> None:
    global _tokenizer
    _tokenizer = Tokenizer.from_file(path)


def _encode(texts: list[str]) -> np.ndarray:
    assert _tokenizer is not None
    # " <|unfinished|>" would leave a lone space token before the mark.
    texts = [text.replace(f" {UNFINISHED}", UNFINISHED) for text in texts]
    encoded = _tokenizer.encode_batch_fast(texts)
    return np.concatenate([np.empty(0, np.uint16), *(np.array(item.ids, dtype=np.uint16) for item in encoded)])


def tokenize(corpus: Path, work: Path, vocabulary: int, sample_bytes: int) -> dict[str, float]:
    """Write the tokenizer and both splits; returns the counts.

    A story is <|endoftext|> and its ids, so every story's end is the next one's beginning.

    >>> tokenize(Path("corpus.txt"), Path("work"), vocabulary=4096, sample_bytes=60_000_000)["train_tokens"]
    """
    began = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(corpus, vocabulary, sample_bytes)
    tokenizer.save(str(work / "tokenizer.json"), pretty=False)
    print(f"{tokenizer.get_vocab_size()} pieces after {time.monotonic() - began:.0f} s", flush=True)

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    workers = multiprocessing.get_context("spawn")
    counts = {"train": 0, "validation": 0}
    every = round(1 / VALIDATION_SHARE)
    start = (str(work / "tokenizer.json"),)
    with (
        workers.Pool(os.cpu_count(), _start_worker, start) as pool,
        (work / "train.bin.part").open("wb") as train,
        (work / "validation.bin.part").open("wb") as validation,
    ):
        for number, ids in enumerate(pool.imap(_encode, chunks(corpus))):
            # Within a chunk the stories are independent draws, so a piece from its end is a fair split.
            starts = np.flatnonzero(ids == END_ID)
            if len(starts) == 0:
                continue
            held = starts[-max(1, len(starts) // every)] if number or len(starts) > 1 else len(ids)
            counts["train"] += train.write(ids[:held].tobytes()) // 2
            counts["validation"] += validation.write(ids[held:].tobytes()) // 2
    if not all(counts.values()):
        raise ValueError(f"{corpus}: {corpus.stat().st_size} bytes give {counts} tokens; sample a larger corpus")
    result = {
        "corpus_bytes": corpus.stat().st_size,
        "vocabulary": tokenizer.get_vocab_size(),
        "train_tokens": counts["train"],
        "validation_tokens": counts["validation"],
        "seconds": round(time.monotonic() - began, 1),
    }
    (work / "tokens.json").write_text(json.dumps(result))
    for name in counts:
        (work / f"{name}.bin.part").rename(work / f"{name}.bin")
    print(result, flush=True)
    return result


def main() -> None:
    """Read the command line and tokenize."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--sample-bytes", type=int, default=60_000_000, help="how much of the corpus the BPE sees")
    args = parser.parse_args()
    tokenize(args.corpus, args.work, args.vocabulary, args.sample_bytes)


if __name__ == "__main__":
    main()
