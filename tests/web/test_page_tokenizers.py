"""The `tokenizers` of a page beside the library itself: the same tokenizer.json of the vocabulary of a GGUF file."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from liveshape.errors import FormatError
from liveshape.export.sources.vocabulary import _SPLITS, Vocabulary, tokenizer_files
from liveshape.llm.text.tokenizer import Tokenizer

tokenizers = pytest.importorskip("tokenizers")

FILE = Path(__file__).parents[2] / "web" / "python" / "tokenizers.py"
PIECES = ["<unk>", "<s>", "</s>", "a", "b", "ab", "abb", "<tool>", "Ġ", "1"]
KINDS = [2, 3, 3, 1, 1, 1, 1, 4, 1, 1]
SPECIAL: dict[str, Any] = {"begin": 1, "end": 2}


def by_the_library(text: str) -> Any:
    """What a page makes of a tokenizer.json, with the library in place of the npm package."""
    made = tokenizers.Tokenizer.from_str(text)
    return SimpleNamespace(encode=lambda given, special: made.encode(given, add_special_tokens=special).ids)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "liveshape_js", SimpleNamespace(makeTokenizer=by_the_library))  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("page_tokenizers", FILE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def both(vocabulary: Vocabulary, page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """tokenizer.json by the library, then by the page's module."""
    library = dict(tokenizer_files(vocabulary))["tokenizer.json"]
    monkeypatch.setitem(sys.modules, "tokenizers", page)
    return [json.loads(library), json.loads(dict(tokenizer_files(vocabulary))["tokenizer.json"])]


@pytest.mark.parametrize("flavour", _SPLITS)
def test_byte_level(flavour: str, page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary("gpt2", PIECES, KINDS, flavour, merges=["a b", "ab b"], adds_begin=True, **SPECIAL)
    library, own = both(vocabulary, page, monkeypatch)
    assert own == library


@pytest.mark.parametrize("adds_begin", [False, True])
@pytest.mark.parametrize("adds_space", [False, True])
def test_sentencepiece(adds_begin: bool, adds_space: bool, page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [-float(each) for each in range(len(PIECES))]
    options = {"adds_begin": adds_begin, "adds_space": adds_space, **SPECIAL}
    library, own = both(Vocabulary("llama", PIECES, KINDS, scores=scores, **options), page, monkeypatch)
    assert own == library


def test_tokens_that_are_added_later(page: ModuleType) -> None:
    from tokenizers import AddedToken, Tokenizer, models

    found = []
    for module in (SimpleNamespace(AddedToken=AddedToken, Tokenizer=Tokenizer, models=models), page):
        made = module.Tokenizer(module.models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
        made.add_special_tokens([module.AddedToken(each, special=True, normalized=False) for each in ("x", "b", "x")])
        made.add_tokens([module.AddedToken("y", normalized=True)])
        again = module.Tokenizer.from_str(made.to_str())
        found.append([json.loads(again.to_str()), again.get_vocab_size(), again.get_vocab_size(False)])
    assert found[0] == found[1]


def test_merges_that_lead_nowhere(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary("gpt2", PIECES, KINDS, "gpt-2", merges=["a c"])
    monkeypatch.setitem(sys.modules, "tokenizers", page)
    with pytest.raises(FormatError, match="lead to no piece"):
        dict(tokenizer_files(vocabulary))


@pytest.mark.parametrize("template", ["{}", "<s>{} ab</s>", "<tool>{}</s><s>"])
@pytest.mark.parametrize("text", ["a</s>b", "</s>", "1<s></s> <s>a", "<tool>a<unk>b</s>", "ab"])
def test_special_tokens_of_a_message_stay_text(
    template: str, text: str, page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Python; tests/web/test_chat_ids.py has the npm package itself."""
    letters = [chr(each) for each in range(33, 127)]
    pieces = [*PIECES, *(each for each in letters if each not in PIECES)]
    kinds = [*KINDS, *[1] * (len(pieces) - len(KINDS))]
    vocabulary = Vocabulary("gpt2", pieces, kinds, "gpt-2", merges=["a b"], **SPECIAL)
    content = dict(tokenizer_files(vocabulary))["tokenizer.json"]
    found = []
    for module in (tokenizers, page):
        monkeypatch.setitem(sys.modules, "tokenizers", module)
        tokenizer = Tokenizer(module.Tokenizer.from_buffer(content))
        source = template.format("{{ messages[0].content }}")
        found.append(tokenizer.apply_chat_template([{"role": "user", "content": text}], chat_template=source))
    assert found[1] == found[0]
    assert sum(each in (1, 2) for each in found[1]) == template.count("s>")


def test_plain_text_has_no_special_tokens_around_it(page: ModuleType) -> None:
    made = page.Tokenizer(page.models.BPE(vocab={"a": 0}, merges=[]))
    made.encode_special_tokens = True
    with pytest.raises(ValueError, match="none can be added"):
        made.encode("a")
