"""A few stories in the student's own words, for a reader to judge."""

from __future__ import annotations

from pathlib import Path

import torch
from nucleus import draw
from student import Student
from tokenize_corpus import END_ID
from tokenizers import Tokenizer

PROMPTS = (
    "",
    "Once upon a time",
    "Once upon a time, there was a little",
    "One day, a dog and a cat",
    "Lily and Tom found a",
    "The little robot",
    "In the forest, there lived a",
    "Grandma made a cake",
    "It was raining, and Ben",
    '"Can I help you?" asked the',
)


@torch.no_grad()
def write_samples(path: Path, model: Student, tokenizer: Path, temperature: float = 0.8, top_p: float = 0.95) -> None:
    """One story per prompt, at most a whole context long; every row is at the same position, in its prompt or beyond.

    >>> write_samples(Path("samples.txt"), model, Path("tokenizer.json"))
    """
    vocabulary = Tokenizer.from_file(str(tokenizer))
    device = model.cos.device
    length = model.config.max_position_embeddings
    prompts = [vocabulary.encode(prompt).ids for prompt in PROMPTS]
    window = torch.full((len(prompts), length), END_ID, device=device)
    for row, ids in enumerate(prompts):
        window[row, : len(ids)] = torch.tensor(ids, device=device)
    known = torch.tensor([len(ids) for ids in prompts], device=device)
    heat = torch.full((len(prompts), 1), temperature, device=device)
    for position in range(1, length):
        token = draw(model(window[:, :position])[:, -1], heat, top_p)
        window[:, position] = torch.where(position < known, window[:, position], token)
    with path.open("w") as file:
        for ids in window.tolist():
            end = ids.index(END_ID, 1) if END_ID in ids[1:] else length
            mark = "" if end < length else " [context full]"
            file.write(f"{vocabulary.decode(ids[1:end])}{mark}\n{'-' * 40}\n")
