"""The tokenizer of a checkpoint that is not converted yet, so that its errors come before any weight is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from liveshape.errors import InputError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.llm.text.tokenizer import Tokenizer

_FILE = "tokenizer.json"


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of a checkpoint, from the files that it carries.

    Example: `tokenizer_of(open_checkpoint("SmolLM2-135M-Instruct.Q4_1.gguf")).chat_template`.
    """
    if _FILE not in checkpoint.files:
        raise InputError(
            f"the model has no {_FILE}, and text needs one: copy that of the model beside its weights; `liveshape run` "
            "runs it without"
        )
    with tempfile.TemporaryDirectory(prefix="liveshape-", ignore_cleanup_errors=True) as home:
        for name, content in checkpoint.files.items():
            (Path(home) / name).write_bytes(content)
        return Tokenizer.load(home)
