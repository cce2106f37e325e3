"""`liveshape perplexity` on the shipped model, against a computation of its own; and what int8 activations cost."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.cli import main
from liveshape.errors import InputError
from liveshape.llm.generation.generating import load
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from liveshape.tools.measuring.cross_entropy import measure
from tests.cli.calls import Capture

TEXT = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine. One day, she "
    "went to the park with her mom. They played on the swings and the slide. Lily had so much fun! Then a big dog "
    "came, and the dog was very sad. It had lost its red ball."
)
CONTEXT = 24


@pytest.fixture(scope="module")
def story() -> Iterator[tuple[LanguageModel, Tokenizer]]:
    model, tokenizer = load(shipped_model())
    with model:
        yield model, tokenizer


def by_hand(model: LanguageModel, ids: list[int]) -> list[float]:
    """The losses of the second halves of whole windows, by the logits after one token at a time."""
    losses = []
    for start in range(0, len(ids) - CONTEXT + 1, CONTEXT):
        model.reset()
        window = [0, *ids[start + 1 : start + CONTEXT]]
        for place, token in enumerate(window[:-1]):
            model.prefill([token])
            if place >= CONTEXT // 2:
                logits = model.logits().astype(np.longdouble)
                chances = np.exp(logits - logits.max())
                losses.append(float(-np.log(chances[window[place + 1]] / chances.sum())))
    return losses


def test_it_is_what_the_logits_say(story: tuple[LanguageModel, Tokenizer]) -> None:
    model, tokenizer = story
    ids = tokenizer.encode(TEXT)
    assert ids[0] == 0, "this tokenizer begins a text with a token"
    losses = by_hand(model, ids)
    found = measure(model, tokenizer, TEXT, CONTEXT)
    windows = len(ids) // CONTEXT
    assert windows >= 2
    assert (found.windows, found.tokens, found.counted) == (windows, windows * CONTEXT, windows * (CONTEXT // 2 - 1))
    assert len(losses) == found.counted
    assert found.perplexity == pytest.approx(np.exp(np.mean(losses)), rel=1e-5)
    assert found.deviation == pytest.approx(found.perplexity * np.std(losses, ddof=1) / len(losses) ** 0.5, rel=1e-4)


def test_the_model_knows_stories_and_not_their_shuffled_words(story: tuple[LanguageModel, Tokenizer]) -> None:
    words = TEXT.split()
    shuffled = " ".join(words[place] for place in np.random.default_rng(1).permutation(len(words)))
    assert measure(*story, TEXT, CONTEXT).perplexity * 10 < measure(*story, shuffled, CONTEXT).perplexity


def test_what_cannot_be_measured(story: tuple[LanguageModel, Tokenizer]) -> None:
    with pytest.raises(InputError, match=r"a text of 4 tokens is shorter than a context of 512; give a longer"):
        measure(*story, "Once upon a")
    for context in (0, 3, 513):
        with pytest.raises(InputError, match=rf"a context of {context} tokens: 4 to 512 are possible"):
            measure(*story, TEXT, context)


@pytest.mark.slow
def test_rounded_activations_by_the_command(
    story: tuple[LanguageModel, Tokenizer], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other numbers, and nearly the same; a tied table stays in memory once."""
    exact = measure(*story, TEXT, CONTEXT)
    made: list[Any] = []
    monkeypatch.setattr(LanguageModel, "close", lambda self: made.append(self.memory))
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    arguments = ["perplexity", str(shipped_model()), "-", "--context", str(CONTEXT), "--activations", "int8", "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["activations"], document["windows"], document["context"]) == ("int8", exact.windows, CONTEXT)
    assert document["tokens_per_second"] > 0
    assert document["perplexity"] != exact.perplexity
    assert document["perplexity"] == pytest.approx(exact.perplexity, rel=0.03)
    assert made[0].weights == story[0].memory.weights


def test_it_prints_a_line(story: tuple[LanguageModel, Tokenizer], capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("liveshape.tools.commands.perplexity.open_model", lambda *_: story)
        patch.setattr(LanguageModel, "close", lambda self: None)
        assert main(["perplexity", "story", str(tmp_path / "text.txt"), "-c", str(CONTEXT)]) == 0
    out, err = capsys.readouterr()
    found = measure(*story, TEXT, CONTEXT)
    assert out.startswith(f"perplexity {found.perplexity:.4f} ± {found.deviation:.4f} ({found.counted} of ")
    assert "tokens/s" in err


def test_help_and_what_is_wrong(capsys: Capture, tmp_path: Path) -> None:
    assert main(["perplexity", "--help"]) == 0
    assert "liveshape perplexity" in capsys.readouterr().out.split("examples:")[1]
    assert main(["perplexity", str(shipped_model()), str(tmp_path / "none.txt")]) == 2
    assert "none.txt" in capsys.readouterr().err
    assert main(["perplexity", "model"]) == 2
    assert main(["perplexity", "model", "text", "--activations", "int4"]) == 2
