"""Turn the trained folder into what the package ships: the 4-bit program, its tokenizer, and torch's own logits.

Run: PYTHONPATH=. python examples/story_model/ship.py RESULT [TARGET], where TARGET is liveshape/demo/story by default.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from liveshape.export.folder import Settings, export_folder
from liveshape.export.model.config import Quantization
from liveshape.export.sources.opening import open_checkpoint
from tests.export.torch_road import build_decoder

MAX_SEQ, CONTEXT = 256, 512
# (tokens of one call): their sum is the length of the text that the demo checks.
CALLS = (9, 1, 31, 1, 64, 2, 7, 1)
TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine. "
HERE = Path(__file__).parent


def golden(folder: Path, settings: Settings) -> dict[str, np.ndarray]:
    """The logits of the last token of each call, from torch on the same 4-bit weights."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(TEXT * 6).ids[: sum(CALLS)]
    decoder = build_decoder(open_checkpoint(str(folder)), settings).eval()
    rows, start = [], 0
    with torch.no_grad():
        for count in CALLS:
            tokens = torch.tensor([ids[start : start + count]])
            rows.append(decoder(tokens, torch.tensor([start]))[0].float().numpy())
            start += count
    return {"ids": np.array(ids, np.int64), "calls": np.array(CALLS), "logits": np.stack(rows)}


def main() -> None:
    folder = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE.parent.parent / "liveshape" / "demo" / "story"
    settings = Settings(Quantization("4w"), max_seq=MAX_SEQ, max_context=CONTEXT)
    export_folder(open_checkpoint(str(folder)), target, settings)
    np.savez_compressed(target / "golden.npz", **golden(folder, settings))

    sizes = {path.name: path.stat().st_size for path in sorted(target.iterdir()) if path.is_file()}
    print(sizes, f"{sum(sizes.values()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
