"""Tokenizers that are made here, a chat template, and a model that says what it is told to: no weights, no GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from liveshape.errors import UnsupportedError
from liveshape.llm.engine.fair_lock import FairLock
from liveshape.llm.engine.origin import Origin
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.settings import GenerationSettings
from liveshape.llm.text.tokenizer import Tokenizer

SENTENCES = [
    "Once upon a time there was a little cat who lived in a small house.",
    "The cat said: how are you? I am well, said the dog, and the sun was warm.",
    "user and assistant and system talk to each other, one after the other.",
] * 4
START, END = "<|im_start|>", "<|im_end|>"
# The template of SmolLM2, but for the words of its system prompt.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@cache
def byte_level() -> tokenizers.Tokenizer:
    """GPT-2's kind: every byte has a token, so a character may be split over several."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(SENTENCES, trainer)
    return made


@cache
def sentencepiece() -> tokenizers.Tokenizer:
    """Llama's kind: words begin with a visible space, and bytes stand in for characters that are not there."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "O", "n", "c", "e", "On", "Onc", "Once", "▁Once", "▁c", "a", "t", "▁ca", "▁cat", ",", "\n"]
    merges = [("O", "n"), ("On", "c"), ("Onc", "e"), ("▁", "Once"), ("▁", "c"), ("▁c", "a"), ("▁ca", "t")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens([AddedToken(token, special=True) for token in ("<unk>", "<s>", "</s>")])
    made.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 1)])
    return made


def chatty(**generation: Any) -> Tokenizer:
    """A byte-level tokenizer with a chat template; `<|im_end|>` ends an answer."""
    config = {"bos_token": START, "eos_token": END}
    return Tokenizer(
        byte_level(), config, chat_templates={"default": CHAT_TEMPLATE}, generation=GenerationSettings(**generation)
    )


def plain() -> Tokenizer:
    """The same without a chat template."""
    return Tokenizer(byte_level(), {"bos_token": START, "eos_token": END})


def write_folder(folder: Path, **files: Any) -> Path:
    """A folder with a byte-level tokenizer, an empty model.pte and further files, objects as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_level().save(str(folder / "tokenizer.json"))
    (folder / "model.pte").write_bytes(b"")
    for name, content in files.items():
        if isinstance(content, str):
            (folder / f"{name}.jinja").write_text(content)
        else:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


Next = Callable[[list[int]], int]


class FakeModel:
    """The calls of LanguageModel over a list of tokens for a cache, with the next token as a function of it."""

    def __init__(self, following: Next, *, context: int = 512, vocab_size: int = 400) -> None:
        self.following = following
        self.max_context, self.vocab_size = context, vocab_size
        self.max_seq_len = context
        self.trained_context: int | None = None
        self.eos_ids: tuple[int, ...] = ()
        self.bos_id: int | None = None
        self.tokens: tuple[int, ...] = ()
        self.computed: list[list[int]] = []  # what each prefill was given
        self.samplings: list[Sampling] = []
        self.memory = SimpleNamespace(total=2_000_000_000)
        self.device = SimpleNamespace(name="a list", lost=False, flush=lambda: None)
        self.activations = "float32"
        self.positional = True
        self.lookaheads: list[tuple[Any, int]] = []  # who was asked for drafts, and how long
        self.lock = FairLock()
        self.origin = Origin("a list")

    @property
    def position(self) -> int:
        return len(self.tokens)

    def warm_up(self, samplings: Sequence[Sampling] = (), progress: Any = None) -> None:
        """A list compiles nothing."""

    def prefill(self, ids: Sequence[int]) -> None:
        assert self.position + len(ids) <= self.max_context
        self.computed.append(list(ids))
        self.tokens += tuple(ids)

    def logits(self) -> npt.NDArray[np.float32]:
        row = np.zeros(self.vocab_size, np.float32)
        row[self.following(list(self.tokens))] = 10
        return row

    def check_lookahead(self, lookahead: Any, lookahead_tokens: int) -> None:
        self.lookaheads.append((lookahead, lookahead_tokens))

    def stream(
        self, ids: Sequence[int], sampling: Sampling, max_tokens: int, stop_ids: Sequence[int] = (), **ahead: Any
    ) -> Iterator[int]:
        """As the real one: a token is in the cache when it comes, but for the last one."""
        self.samplings.append(sampling)
        self.prefill(ids)
        for left in reversed(range(max_tokens)):
            token = self.following(list(self.tokens))
            last = token in stop_ids or not left or self.position == self.max_context
            if not last:
                self.tokens += (token,)
            yield token
            if last:
                return

    def reset(self) -> None:
        self.tokens = ()

    def truncate(self, length: int) -> None:
        assert length <= self.position
        if not self.positional and length != self.position:
            raise UnsupportedError("it can only go back to the start")
        self.tokens = self.tokens[:length]


def reciting(tokens: Sequence[int], after: int) -> Next:
    """One token after the other, behind a prompt of so many; the last one again and again."""
    return lambda cache: tokens[min(len(cache) - after, len(tokens) - 1)]


def answering(tokenizer: Tokenizer, *answers: str) -> Next:
    """The first answer after the first `assistant` in the cache, the second after the second, each with its end."""
    rows = [tokenizer.encode(answer + END, add_special_tokens=False) for answer in answers]
    opening = tokenizer.encode(f"{START}assistant\n", add_special_tokens=False)
    size = len(opening)

    def following(cache: list[int]) -> int:
        begins = [place + size for place in range(len(cache)) if cache[place : place + size] == opening]
        row = rows[len(begins) - 1]
        return row[min(len(cache) - begins[-1], len(row) - 1)]

    return following
