"""Tokenizer: encode and decode, a thin wrapper over `tokenizers`, with the files and conventions of transformers.

`StreamDecoder` is incremental detokenization: whole characters only.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from liveshape.disk import read_text
from liveshape.errors import FormatError, InputError, LiveshapeError
from liveshape.llm.arguments import path_of, text_of, token_ids
from liveshape.llm.settings import GenerationSettings, read_json
from liveshape.llm.text.chat_template import ChatTemplate, Message, as_tables
from liveshape.llm.text.long_texts import VERY_LONG_TEXT, encoded_ids
from liveshape.llm.text.messages import ControlTokens, check_messages
from liveshape.llm.text.token_bound import TokenBound, TooManyTokensError
from liveshape.llm.text.tokenizer_file import TokenizerFile
from liveshape.packages import need

if TYPE_CHECKING:
    import tokenizers

_BROKEN = "\N{REPLACEMENT CHARACTER}"
# A UTF-8 character has at most four bytes: after this many tokens it is invalid, not incomplete.
_PATIENCE = 16
# Tokens of the prompt that are decoded along, to know whether the first generated one starts with a space.
_CONTEXT = 8
_MOST_IDS = 1 << 32  # the library takes 32 bits
# Encodes a text elsewhere: whether special tokens are added, or the mark in control tokens that stay text.
Aside = Callable[[str, bool, str | None], list[int]]
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_WISHES = ("add_bos_token", "add_eos_token")


class Tokenizer:
    """A tokenizer: tokenizer.json, tokenizer_config.json, the chat template and generation_config.json.

    Example: `Tokenizer.load("folder").encode("Once upon a time")`.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        config: Mapping[str, Any] | None = None,
        *,
        chat_templates: Mapping[str, str] | None = None,
        generation: GenerationSettings | None = None,
    ) -> None:
        self._backend = backend
        self._config = dict(config or {})
        self._file: TokenizerFile | None = None  # None if it was not loaded from a file
        self._templates = {name: ChatTemplate(text) for name, text in (chat_templates or {}).items()}
        self.generation = generation or GenerationSettings()
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._names = {key: _content(value) for key, value in self._config.items() if key.endswith("_token")}
        self._most: int | None = None  # tokens of a text
        self._holder = ""  # who takes no more
        self._characters: int | None = None  # of a text, at most
        self._aside: Aside | None = None
        self._bounds: list[TokenBound | None] = []  # one, once it was asked for
        self.lengths: dict[int, int] = {}  # of the texts of single tokens, as streams meet them

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """Load the tokenizer of a folder, or the one beside a model file.

        Example: `Tokenizer.load("SmolLM2-135M-Instruct")`.
        """
        need("tokenizers")
        import tokenizers

        path = path_of(folder)
        home = path if path.is_dir() else path.parent
        file = path if path.suffix == ".json" else home / "tokenizer.json"
        if not file.exists():
            raise InputError(
                f"{file} does not exist: text needs the tokenizer.json of the model beside it; copy it there, or make "
                "both anew: liveshape export SOURCE -o FOLDER; `liveshape run` runs a program without one"
            )
        checked = TokenizerFile.read(file)
        with _library(FormatError, f"{file}"):
            backend = tokenizers.Tokenizer.from_buffer(checked.content)
            # Files may have settings for training: a prompt must be neither truncated nor padded.
            backend.no_truncation()
            backend.no_padding()
            # Some invalid files load, and fail or panic at the first encode.
            backend.encode("", add_special_tokens=True)
        config = {
            **_special_tokens(home / "special_tokens_map.json"),
            **_special_tokens(home / "tokenizer_config.json"),
        }
        generation = GenerationSettings.read(home / "generation_config.json")
        made = cls(backend, config, chat_templates=_read_templates(home), generation=generation)
        made._file = checked
        return made

    def to_json(self) -> str:
        """tokenizer.json, serialized.

        Example: `json.loads(tokenizer.to_json())["model"]["type"]`.
        """
        return self._backend.to_str()

    # Vocabulary and special tokens

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary, added tokens included."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def same_tokens(self, other: Tokenizer) -> bool:
        """Whether another tokenizer has the same vocabulary, with the same ids.

        Example: `tokenizer.same_tokens(Tokenizer.load("a-smaller-model"))`.
        """
        mine, others = (each._backend.get_vocab(with_added_tokens=True) for each in (self, other))
        return mine == others

    @property
    def bos_token(self) -> str | None:
        """The BOS token."""
        return self._names.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The EOS token."""
        return self._names.get("eos_token")

    @property
    def bos_id(self) -> int | None:
        """The id of the BOS token, from tokenizer_config.json, or else generation_config.json."""
        found = self.token_id(self.bos_token)
        return self.generation.bos_id if found is None else found

    @property
    def eos_ids(self) -> frozenset[int]:
        """All stop token ids: the tokenizer's EOS token and those of generation_config.json."""
        own = self.token_id(self.eos_token)
        return frozenset(self.generation.eos_ids) | ({own} if own is not None else set())

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template, if the model has one."""
        return self._templates["default"].source if "default" in self._templates else None

    @property
    def takes_tools(self) -> bool:
        """Whether a chat template of the model renders tools."""
        return any(name == "tool_use" or "tools" in template.source for name, template in self._templates.items())

    def with_chat_template(self, source: str) -> Tokenizer:
        """The same tokenizer with another chat template.

        Example: `tokenizer.with_chat_template(Path("chatml.jinja").read_text())`.
        """
        made = copy.copy(self)
        made._templates = {"default": ChatTemplate(text_of(source, "a chat template"))}
        return made

    def token_id(self, token: str | None) -> int | None:
        """The id of a token in the vocabulary.

        Example: `tokenizer.token_id("<|im_end|>")`.
        """
        return None if token is None else self._backend.token_to_id(text_of(token, "a token"))

    def token(self, index: int) -> str | None:
        """The token of an id, as the vocabulary spells it.

        Example: `tokenizer.token(262) == "Ġthe"`.
        """
        (number,) = token_ids((index,))
        return self._backend.id_to_token(number) if 0 <= number < _MOST_IDS else None

    # Text

    def limited(
        self, most: int | None, holder: str, aside: Aside | None = None, *, characters: int | None = None
    ) -> Tokenizer:
        """The same tokenizer, which refuses texts of more `characters`, or that must have more tokens than `holder`
        takes, before they are encoded; long ones are encoded by `aside`.

        Example: `tokenizer.limited(256, "the context of this model").encode("a" * 1_000_000)`.
        """
        _ = self._control_tokens  # copies share it
        made = copy.copy(self)
        made._most, made._holder, made._characters = most, holder, characters
        made._aside = aside or self._aside
        return made

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of the tokens of a text, from its length alone; 0 where this vocabulary has none.

        Example: `tokenizer.fewest_tokens("a" * 1_000_000)`.
        """
        if not self._bounds:  # shared by copies
            try:
                self._bounds.append((self._file or TokenizerFile.of(self.to_json().encode())).bound)
            except FormatError:
                self._bounds.append(None)
        bound = self._bounds[0]
        return 0 if bound is None else bound.fewest(text)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Encode a text to token ids; special tokens that are spelled out in it become their single ids.

        Example: `tokenizer.encode("Hi") == tokenizer.encode("<s>Hi", add_special_tokens=False)`.
        """
        self._check_length(text)
        if self._aside is not None and len(text) > VERY_LONG_TEXT:
            return self._aside(text, add_special_tokens, None)
        with _library(InputError, "the tokenizer cannot encode this text"):
            ids = encoded_ids(self._backend, text, add_special_tokens)
        wish, begin = self._config.get("add_bos_token"), self.bos_id
        if not add_special_tokens or wish is None or begin is None:
            return ids
        has_one = ids[:1] == [begin] and ids != encoded_ids(self._backend, text, add_special_tokens=False)
        if wish and not has_one:
            return [begin, *ids]
        return ids[1:] if has_one and not wish else ids

    def encode_prompt(self, text: str) -> list[int]:
        """Encode a prompt: with the BOS token if the model wants it, but not twice if the text begins with it.

        Example: `tokenizer.encode_prompt("<s>Hi") == tokenizer.encode_prompt("Hi")`.
        """
        begun = self.bos_token is not None and text.startswith(self.bos_token)
        ids = self.encode(text, add_special_tokens=not begun)
        return ids or ([self.bos_id] if self.bos_id is not None else [])

    def decode(self, ids: int | Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """Decode token ids to text.

        Example: `tokenizer.decode([504, 3575]) == "The capital"`.
        """
        row = token_ids((ids,) if isinstance(ids, Integral) else ids)
        outside = next((index for index in row if not 0 <= index < _MOST_IDS), None)
        if outside is not None:
            raise InputError(f"{outside} is no token: ids are from 0 to {self.vocab_size - 1}")
        return self.decode_valid(row, skip_special_tokens)

    def decode_behind(self, token: int) -> str:
        """The text of one token as it is behind others: sentencepiece drops the space of a first word.

        Example: `tokenizer.decode_behind(3575) == " capital"`.
        """
        return self.decode([token, token])[len(self.decode([token])) :]

    def decode_valid(self, row: list[int], skip_special_tokens: bool) -> str:
        """Decode ids that are known to be tokens; for what decodes thousands of times a second.

        Example: `tokenizer.decode_valid([504], skip_special_tokens=True)`.
        """
        try:
            return self._backend.decode(row, skip_special_tokens=skip_special_tokens)
        except BaseException:
            with _library(InputError, "the tokenizer cannot decode these ids"):
                raise

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = ...,
        continue_final_message: bool = ...,
        tokenize: Literal[True] = ...,
        **variables: Any,
    ) -> list[int]: ...

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = ...,
        continue_final_message: bool = ...,
        tokenize: Literal[False],
        **variables: Any,
    ) -> str: ...

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tokenize: bool = True,
        tools: Sequence[Any] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> list[int] | str:
        """Render messages with the chat template, and tokenize; further arguments are variables of the template.

        A control token that is spelled out in a message or in tools is encoded as plain text: only those of the
        template become single ids. (`tokenize=False` returns the text, in which they cannot be told apart any more.)
        With `continue_final_message` the text ends behind the content of the last message, so that an answer goes on
        from it.

        Example: `tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], enable_thinking=False)`.
        """
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        template = ChatTemplate(chat_template) if chat_template is not None else self._templates.get(name)
        if template is None:
            raise InputError(
                "this tokenizer has no chat template (neither chat_template.jinja nor one in tokenizer_config.json): "
                "give the prompt as text"
            )
        given = as_tables(messages)
        check_messages(given, template.source)
        names = {key: token for key, token in self._names.items() if token is not None}
        mark, (said, *others) = self._control_tokens.marked(given, tools, variables.pop("documents", None))
        known = {**names, **dict(zip(("tools", "documents"), others, strict=True)), **variables}
        if continue_final_message:
            text = template.render_open(said, **known)
        else:
            text = template.render(said, add_generation_prompt=add_generation_prompt, **known)
        if mark is None or mark not in text:
            return self.encode(text, add_special_tokens=False) if tokenize else text
        if not tokenize:
            return text.replace(mark, "")
        return self.encode_marked(text, mark)

    def encode_marked(self, text: str, mark: str) -> list[int]:
        """Encode a rendered text: control tokens that have `mark` in them stay text.

        Example: `tokenizer.encode_marked("Hi<\ufdd0|im_end|><|im_end|>", "\ufdd0")`.
        """
        self._check_length(text)
        if self._aside is not None and len(text) > VERY_LONG_TEXT:
            return self._aside(text, False, mark)
        with _library(InputError, "the tokenizer cannot encode this text"):
            return self._control_tokens.encode(text, mark)

    @cached_property
    def _control_tokens(self) -> ControlTokens:
        added = self._backend.get_added_tokens_decoder()
        return ControlTokens(self._backend, {index: added[index].content for index in self.special_ids})

    def _check_length(self, text: str) -> None:
        text_of(text, "what is encoded")
        most, characters = self._most, self._characters
        if characters is not None and len(text) > characters:
            raise InputError(f"a text has {len(text):,} characters, and of at most {characters:,} tokens are counted")
        if most is not None and len(text) > most and (fewest := self.fewest_tokens(text)) > most:
            raise TooManyTokensError(len(text), fewest, most, self._holder)
        if self._file is not None and not self._file.fits(text, self._backend.normalizer):
            raise InputError(f"a text of {len(text):,} characters is too long for what this tokenizer makes of it")


class StreamDecoder:
    """Incremental detokenizer: whole characters only, and spaces as `decode` has them.

    `prompt` are the token ids before the first one: sentencepiece drops the space of a first word, not of a later one.

    Example: `decoder = StreamDecoder(tokenizer); print(decoder.put(token), end=""); print(decoder.end())`.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []  # the tokens of the last piece, then those not emitted yet
        for token in prompt[-_CONTEXT:]:
            self._window = [] if token in tokenizer.special_ids else [*self._window, int(token)]
        self._settled = len(self._window)
        self._length = len(self._text())

    def put(self, token: int) -> str:
        """The text that one more token completes: empty if it ends inside of a character."""
        if token in self._tokenizer.special_ids:
            return ""
        self._window.append(int(token))
        text = self._text()
        waiting = len(self._window) - self._settled
        if text.endswith(_BROKEN) and waiting < _PATIENCE:
            return ""
        piece = text[self._length :]
        # How a token decodes depends on the tokens before it, so the last piece stays as context.
        del self._window[: self._settled]
        self._settled, self._length = len(self._window), self._settled_length()
        return piece

    def _settled_length(self) -> int:
        """The length of the text of the window; of one token it is known by then."""
        if len(self._window) != 1:
            return len(self._text())
        lengths, (token,) = self._tokenizer.lengths, self._window
        if token not in lengths:
            lengths[token] = len(self._text())
        return lengths[token]

    def end(self) -> str:
        """The rest: an incomplete character, as U+FFFD."""
        piece = self._text()[self._length :]
        self._window, self._settled, self._length = [], 0, 0
        return piece

    def _text(self) -> str:
        return self._tokenizer.decode_valid(self._window, skip_special_tokens=True) if self._window else ""


def _read_templates(home: Path) -> dict[str, str]:
    file = home / "chat_template.jinja"
    if file.exists():
        try:
            return {"default": read_text(file)}
        except UnicodeDecodeError as error:
            raise FormatError(f"{file}: {error}") from error
    for name in ("tokenizer_config.json", "chat_template.json"):
        found = read_json(home / name).get("chat_template")
        if not found:
            continue
        if isinstance(found, str):
            return {"default": found}
        if not isinstance(found, list) or not all(_is_named_template(each) for each in found):
            raise FormatError(f"{home / name}: chat_template is a text, or a list of objects with name and template")
        return {each["name"]: each["template"] for each in found}
    return {}


def _is_named_template(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "template"))


def _special_tokens(path: Path) -> dict[str, Any]:
    """The JSON of a config file, with its special tokens and BOS/EOS flags validated."""
    config = read_json(path)
    for field in _TOKENS:
        token = config.get(field)
        content = token.get("content") if isinstance(token, dict) else token
        if token is not None and not _is_text(content):
            raise FormatError(f"{path}: {field} is a text, or an object with its content; it has {token!r:.60}")
    for field in _WISHES:
        if not isinstance(config.get(field), bool | None):
            raise FormatError(f"{path}: {field} is true or false, it has {config[field]!r:.60}")
    return config


def _is_text(value: Any) -> bool:
    # JSON can spell lone surrogates, which no tokenizer takes.
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


@contextmanager
def _library(kind: type[LiveshapeError], what: str) -> Iterator[None]:
    """Translate errors of `tokenizers`: it raises plain Exception, and a panic is a BaseException."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{what}: {error}") from error


def _content(token: Any) -> str | None:
    """The text of a token in tokenizer_config.json, which is a string or an AddedToken object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
