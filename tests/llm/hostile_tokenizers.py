"""Loads every tokenizer of a list in one process and uses it, under limits of the system: run as a program.

Standard input is a JSON object of names and documents (texts are taken as they are); a line comes out for each.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

from liveshape.errors import LiveshapeError
from liveshape.llm.text.tokenizer import Tokenizer

TEXTS = ("a cat", "", "Once  upon\n a time <|endoftext|>", "é😀ﷺ" * 20, "a" * 3000, " " * 3000, "ab" * 1500 + "!")


def outcome(folder: Path) -> str:
    """What became of one: "works", or the name of our error; anything else is raised."""
    try:
        tokenizer = Tokenizer.load(folder)
        for text in TEXTS:
            try:
                ids = tokenizer.encode(text)
                tokenizer.decode(ids[:5000])
            except LiveshapeError:
                continue
        return "works"
    except LiveshapeError as error:
        return type(error).__name__


def main() -> None:
    """Print the outcome of each."""
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    folder = Path(tempfile.mkdtemp())
    for name, document in json.load(sys.stdin).items():
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds + 20, resource.RLIM_INFINITY))
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / "tokenizer.json").write_text(text)
        print(name, end="\t", flush=True)
        print(outcome(folder), flush=True)


if __name__ == "__main__":
    main()
