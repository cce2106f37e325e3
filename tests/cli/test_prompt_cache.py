"""`--prompt-cache`, `--logprobs`, `--json-schema` and `--regex`, with the shipped model."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import liveshape
from liveshape.llm.engine import cache_file
from liveshape.llm.engine.cache_file import Saved
from liveshape.tools.commands import chat, generate
from tests.cli.calls import Capture, call

STORY = Path(liveshape.__file__).parent / "demo" / "story"
PROMPT = "Once upon a time, a little"


@pytest.fixture(autouse=True)
def one_model(monkeypatch: pytest.MonkeyPatch, loaded: Any) -> Any:
    """Loaded once; each command begins with an empty cache, as one of its own would have."""
    model, tokenizer = loaded

    def opened(*_: Any, **__: Any) -> Any:
        model.reset()
        return model, tokenizer

    for module in (chat, generate):
        monkeypatch.setattr(module, "open_model", opened)
    return model


@pytest.fixture(scope="module")
def loaded() -> Any:
    from liveshape.llm import load

    return load(STORY)


def test_a_prompt_is_computed_once(
    capsys: Capture, tmp_path: Path, one_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompt.cache"
    common = ("generate", "--raw", "-n", 4, "--temp", 0, "--prompt-cache", file)
    code, first, err = call(capsys, *common, "-p", PROMPT)
    assert code == 0
    assert "saved to" in err
    assert "taken from" not in err
    computed: list[int] = []
    stream = type(one_model).stream
    monkeypatch.setattr(
        type(one_model),
        "stream",
        lambda self, ids, *rest, **more: computed.append(len(ids)) or stream(self, ids, *rest, **more),
    )
    code, again, err = call(capsys, *common, "-p", PROMPT)
    assert (code, again) == (0, first)
    assert f"tokens taken from {file}" in err
    assert call(capsys, *common, "-p", PROMPT + first[:-1])[0] == 0
    assert call(capsys, *common, "-p", "The cat")[0] == 0
    assert computed[:2] == [1, 1]
    assert computed[2] > 1
    # The file is now that of the last text.
    assert call(capsys, *common, "-p", "The cat")[0] == 0
    assert computed[3] == 1


def test_a_conversation_is_saved_when_it_ends(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "chat.cache"
    for taken in (False, True):
        monkeypatch.setattr("sys.stdin", io.StringIO("Once upon\nq\n"))
        code, _, err = call(capsys, "chat", "-n", 2, "--prompt-cache", file)
        assert code == 0
        assert ("taken from" in err) == taken
        assert "saved to" in err


@pytest.mark.parametrize("kind", ["foreign", "stale"])
def test_a_file_of_something_else_stays_as_it_is(capsys: Capture, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "notes.txt"
    if kind == "foreign":
        file.write_text("my notes")
    else:
        cache_file.save(file, Saved("another program", "float32", (1, 2), (), ()))
    before = file.read_bytes()
    code, out, err = call(capsys, "generate", "--raw", "-p", PROMPT, "--prompt-cache", file)
    assert (code, out) == (2, "")
    assert {"foreign": "is not a saved cache", "stale": "is of another program"}[kind] in err
    assert "remove it, or name another file" in err
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_is_told_before_a_model_is_loaded(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liveshape.tools.commands.generate.open_model", None)
    for file, message in ((tmp_path, "is a folder"), (tmp_path / "none" / "x", "does not exist; make it first")):
        code, _, err = call(capsys, "generate", "-p", PROMPT, "--prompt-cache", file)
        assert code == 2
        assert message in err


def test_how_likely_tokens_were(capsys: Capture) -> None:
    common = ("generate", "--raw", "-p", PROMPT, "-n", 3, "--temp", 0, "--logprobs", 2)
    document = json.loads(call(capsys, *common, "--json")[1])
    rows = document["logprobs"]
    assert [row["id"] for row in rows] == document["tokens"]
    for row in rows:
        first, second = row["top_logprobs"]
        assert (first["id"], first["logprob"]) == (row["id"], row["logprob"])
        assert second["logprob"] <= first["logprob"] <= 0
    assert "".join(row["token"] for row in rows).strip() == document["text"].strip()
    code, _, err = call(capsys, *common)
    assert code == 2
    assert "add --json" in err


def test_text_of_a_form(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    strict = {**schema, "additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}
    (tmp_path / "schema.json").write_text(json.dumps(strict))
    for given in (json.dumps(strict), tmp_path / "schema.json"):
        code, out, err = call(capsys, "generate", "--raw", "-p", PROMPT, "--json-schema", given)
        assert code == 0
        assert set(json.loads(out)) == {"ok"}
        assert "(grammar)" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("Yes or no?\nq\n"))
    assert re.fullmatch("(yes|no)\n", call(capsys, "chat", "--regex", "yes|no")[1])
    monkeypatch.setattr("liveshape.tools.commands.generate.open_model", None)
    wrong: list[tuple[Any, ...]] = [
        ("--regex", "(a"),
        ("--json-schema", "{"),
        ("--json-schema", tmp_path / "none.json"),
    ]
    wrong += [("--regex", "a", "--lookahead", "ngram"), ("--regex", "a", "--json-schema", "{}")]
    for flags in wrong:
        assert call(capsys, "generate", "-p", PROMPT, *flags)[0] == 2
