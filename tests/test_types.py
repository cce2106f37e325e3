"""What a type checker tells a user of the package: typos in options and attributes are errors, right calls are not."""

from __future__ import annotations

from pathlib import Path

import pytest

RIGHT = """
import numpy as np, liveshape
from liveshape.llm import Conversation, generate, load, stream_generate
model = liveshape.load("model.pte")
shape: tuple[int, ...] = model(np.zeros(3), 1, [2.0]).shape
first, second = model(np.zeros(3))
talker, tokenizer = load("folder")
text: str = generate(talker, tokenizer, "Hi", temperature=0.5)
ids: str = generate(talker, tokenizer, [1, 2])
messages: str = generate(talker, tokenizer, [{"role": "user", "content": "Hi"}])
texts: list[str] = generate(talker, tokenizer, ["Hi", "Ho"], seed=1)
more: list[str] = generate(talker, tokenizer, [[1, 2], [3]])
"""
WRONG = {
    "model(np.zeros(3)).shap": "shap",
    'generate(talker, tokenizer, "Hi", temperatur=0.5)': "temperatur",
    'Conversation(talker, tokenizer).reply("Hi", max_token=1)': "max_token",
    'stream_generate(talker, tokenizer, "Hi", logprob=1)': "logprob",
}


@pytest.mark.slow
def test_typos_are_found_and_nothing_else(tmp_path: Path) -> None:
    from mypy import api

    config = Path(__file__).parent.parent / "pyproject.toml"
    (tmp_path / "user.py").write_text(RIGHT + "\n".join(WRONG))
    told, _, _ = api.run(["--config-file", str(config), str(tmp_path / "user.py")])
    lines = {int(line.split(":")[1]) for line in told.splitlines() if ": error: " in line}
    start = RIGHT.count("\n") + 1
    assert lines == set(range(start, start + len(WRONG))), told
    assert all(name in told for name in WRONG.values())
