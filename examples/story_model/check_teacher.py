"""Check the teacher against an oracle: greedy ids and first logits of expected.json, decoded text, prompt ids.

Run: python check_teacher.py FOLDER_WITH_stories15M expected.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from teacher import Teacher
from teacher_tokenizer import TeacherTokenizer


@torch.inference_mode()
def check(folder: Path, expected: Path) -> None:
    """Raise AssertionError at the first difference."""
    tokenizer = TeacherTokenizer(folder / "tokenizer.bin")
    for case in json.loads(expected.read_text())["cases"]:
        teacher = Teacher(folder / "stories15M.bin", batch=1, device="cpu", dtype=torch.float32)
        ids = case["ids"]
        greedy: list[int] = []
        assert tokenizer.encode(case["prompt"]) == ids, (case["prompt"], tokenizer.encode(case["prompt"]), ids)
        logits = teacher.forward(torch.tensor([ids]), 0)
        error = max(abs(logits[0, token].item() - value) for token, value in case["first_step_top5"])
        while len(greedy) < len(case["greedy"]):
            greedy.append(int(logits.argmax()))
            logits = teacher.forward(torch.tensor([[greedy[-1]]]), len(ids) + len(greedy) - 1)
        assert greedy == case["greedy"], (case["prompt"], greedy, case["greedy"])
        text = tokenizer.decode(greedy)
        assert text.strip() == case["text"].removeprefix(case["prompt"]).strip(), (text, case["text"])
        print(f"{case['prompt']!r}: {len(greedy)} greedy ids equal, first logits within {error:.1e}")


if __name__ == "__main__":
    check(Path(sys.argv[1]), Path(sys.argv[2]))
