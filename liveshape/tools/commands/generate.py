"""`liveshape generate`: the text that follows a prompt, as it comes, and how fast it came."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liveshape.errors import InputError
from liveshape.export.folder import Settings
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.runnable import Conversion
from liveshape.export.sources.opening import located, runs_as_it_is
from liveshape.llm.arguments import LOOKAHEAD_TOKENS, guess_limit, path_of, stop_strings, token_limit
from liveshape.llm.generation.constraint import grammar_of
from liveshape.llm.generation.generating import ContextError, prompt_ids, stream_generate
from liveshape.llm.generation.logprobs import Logprobs
from liveshape.llm.generation.options import Prompt
from liveshape.llm.generation.responses import GenerationResponse, speed_text
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.program.context import larger_context
from liveshape.llm.settings import GenerationSettings
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.llm.text.unconverted import tokenizer_of
from liveshape.tools.console import print_json, upload_bar
from liveshape.tools.interrupts import interruptible
from liveshape.tools.model_argument import contexts_of, runnable_model
from liveshape.tools.prompt_cache import check_prompt_cache, keep_prompt_cache, take_prompt_cache
from liveshape.tools.wrapping import wrapped

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel

STDIN = "-"
NGRAM = "ngram"
AS_USUAL = Conversion()
Check = Callable[[Tokenizer, int | None, int | None], None]  # the context of the run, and the trained one
_LABEL = 72  # characters of a prompt above its answer
_LEAST_LIKELY = -9999.0  # what OpenAI writes for the logarithm of 0


def generate(
    model: str | None,
    *,
    prompt: str | Sequence[str] | None = None,
    prompt_file: str | None = None,
    system: str | None = None,
    chat_template: str | None = None,
    raw: bool = False,
    device: str | None = None,
    half_cache: bool = False,
    activations: str = "float32",
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
    sampling: Mapping[str, Any] | None = None,
    lookahead: str | None = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    prompt_cache: str | None = None,
    json_schema: str | None = None,
    regex: str | None = None,
    logprobs: int | None = None,
    as_json: bool = False,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Print the text to stdout and the speed to stderr; 0 if it was generated, 130 if Ctrl-C ended it.

    Example: `generate("SmolLM2-135M-Instruct", prompt="Why is the sky blue?", sampling={"temperature": 0.7})`.
    """
    check_options(sampling, max_tokens, stop, lookahead, lookahead_tokens)
    check_prompt_cache(prompt_cache)
    schema = read_schema(json_schema)
    check_form(schema, regex, lookahead)
    if logprobs is not None and not as_json:
        raise InputError("--logprobs are told in JSON: add --json")
    if raw and system is not None:
        raise InputError("--system cannot be told to the model: --raw takes the prompt as it is")
    texts = read_prompts(prompt, prompt_file)
    template = None if chat_template is None else read_text(chat_template)
    stats = Stats(model_load_start_ms=now_ms())

    def fits(tokenizer: Tokenizer, context: int | None, trained: int | None) -> None:
        chatting = tokenizer if template is None else tokenizer.with_chat_template(template)
        for text in texts:
            # The token that begins an empty prompt is the model's, which is not there yet; one is as good as another.
            count = len(prompt_ids(chatting, make_prompt(chatting, text, system, raw), begin=0, raw=raw))
            if context is not None and count > context:
                raise ContextError(count, context, trained)

    loaded, tokenizer = open_model(model, device, half_cache, activations, conversion, fits)
    guesser = open_lookahead(lookahead, device, half_cache, activations, conversion)
    stats.model_load_end_ms = now_ms()
    take_prompt_cache(loaded, prompt_cache)
    if template is not None:
        tokenizer = tokenizer.with_chat_template(template)
    # The seed is drawn here where none is given, so that the JSON can name it.
    chosen = asdict(tokenizer.generation.sampling(**(sampling or {})))

    def answers(text: str, stats: Stats) -> Generator[GenerationResponse, None, None]:
        return stream_generate(
            loaded,
            tokenizer,
            make_prompt(tokenizer, text, system, raw),
            max_tokens=max_tokens,
            stop=stop,
            stats=stats,
            lookahead=guesser,
            lookahead_tokens=lookahead_tokens,
            keep_prefix=prompt_cache is not None,
            json_schema=schema,
            regex=regex,
            logprobs=logprobs,
            raw=raw,
            **chosen,
        )

    # What cannot work is an error before the first token of the first.
    for text in texts[1:]:
        answers(text, Stats()).close()
    documents: list[dict[str, Any]] = []
    stopped = False
    for place, text in enumerate(texts):
        own = replace(stats)
        responses = answers(text, own)
        if len(texts) > 1 and not as_json:
            say(f"{chr(10) if place else ''}==> {_first_line(text)} <==\n")
        pieces, tokens, likely, last, stopped = _spoken(responses, aloud=not as_json)
        if as_json:
            generated = tokens[: last.generation_tokens]
            document = _document(model, loaded, "".join(pieces), generated, last, chosen, own)
            if logprobs is not None:
                document["logprobs"] = [_likely(tokenizer, *pair) for pair in zip(generated, likely, strict=True)]
            documents.append(document)
        else:
            say("\n")
            print(speed_text(last, own), file=sys.stderr)
        tokens_in_all = last.prompt_tokens + last.generation_tokens
        if last.finish_reason == "length" and tokens_in_all > loaded.max_context:
            advice = larger_context(loaded.trained_context, tokens_in_all)
            full = f"the context of {loaded.max_context:,} tokens is full: for a longer text, {advice}"
            print(wrapped(full, sys.stderr), file=sys.stderr)
        if stopped:
            break
    if as_json:
        print_json(documents[0] if len(texts) == 1 else documents)
    keep_prompt_cache(loaded, prompt_cache)
    return 130 if stopped else 0


def _spoken(
    responses: Generator[GenerationResponse, None, None], aloud: bool
) -> tuple[list[str], list[int], list[Logprobs], GenerationResponse, bool]:
    """An answer as it comes: pieces, tokens, their likelihoods, the last response, and whether Ctrl-C ended it."""
    pieces: list[str] = []
    tokens: list[int] = []
    likely: list[Logprobs] = []
    last: GenerationResponse | None = None
    with interruptible() as interrupted:
        for last in responses:
            pieces.append(last.text)
            tokens.append(last.token)
            if last.logprobs is not None:
                likely.append(last.logprobs)
            if aloud:
                say(last.text)
            if interrupted():
                responses.close()
                break
        stopped = interrupted()
    assert last is not None
    return pieces, tokens, likely, last, stopped


def _first_line(text: str) -> str:
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 3]}..."


def open_model(
    source: str | None,
    device: str | None,
    half_cache: bool = False,
    activations: str = "float32",
    conversion: Conversion = AS_USUAL,
    check: Check | None = None,
) -> tuple[LanguageModel, Tokenizer]:
    """A model and its tokenizer, with bars for what takes long; None is the model that the package carries.

    `check` may refuse what is asked of it, by its tokenizer and its contexts, before weights are converted or uploaded.

    Example: `model, tokenizer = open_model(None, "llvmpipe")`.
    """
    from liveshape.llm.language_model import LanguageModel

    def early(checkpoint: Checkpoint) -> None:
        tokenizer, trained = tokenizer_of(checkpoint), checkpoint.config.context
        if check is not None:
            check(tokenizer, conversion.max_context or Settings().bounds(trained)[1], trained)

    given = str(shipped_model()) if source is None else source
    with runnable_model(given, conversion, early) as path, upload_bar() as progress:
        tokenizer = Tokenizer.load(path)
        if check is not None:
            own, trained = contexts_of(path)
            check(tokenizer, conversion.max_context or own, trained)
        model = LanguageModel.load(
            path,
            device=device,
            progress=progress,
            half_cache=half_cache,
            activations=activations,
            max_context=conversion.max_context,
        )
    if model.trained_context is not None and model.max_context > model.trained_context:
        print(
            f"note: the model was trained for {model.trained_context:,} tokens; text beyond that will be poor",
            file=sys.stderr,
        )
    return model, tokenizer


def open_lookahead(
    wanted: str | None,
    device: str | None,
    half_cache: bool = False,
    activations: str = "float32",
    conversion: Conversion = AS_USUAL,
) -> Any:
    """What `--lookahead` names, for `stream_generate`: "ngram", or a smaller model with its tokenizer.

    One that is converted has a context as large as the other's; its weights are as usual.

    Example: `open_lookahead("SmolLM2-135M-Instruct", "nvidia")`.
    """
    if wanted is None or wanted == NGRAM:
        return wanted
    asked = AS_USUAL if runs_as_it_is(located(wanted)) else replace(conversion, quant=None)
    return open_model(wanted, device, half_cache, activations, asked)


def shipped_model() -> Path:
    """The folder of the small model inside the package."""
    import liveshape.demo

    folder = Path(liveshape.demo.__file__).parent / "story"
    if not folder.is_dir():
        raise InputError("this installation carries no model of its own: name a folder, a .pte or a .gguf file")
    return folder


def read_prompts(prompt: str | Sequence[str] | None, file: str | None) -> list[str]:
    """The prompts as given, from a file, or from stdin; the newline that ends a file or a pipe is not part of it.

    >>> read_prompts("Once", None)
    ['Once']
    """
    given = [] if prompt is None else [prompt] if isinstance(prompt, str) else list(prompt)
    if bool(given) == (file is not None):
        raise InputError("give a prompt: -p TEXT, which may be repeated, -p - for stdin, or -f FILE")
    if given.count(STDIN) > 1:
        raise InputError("stdin can be read once: give -p - once")
    if file is not None:
        return [read_text(file).removesuffix("\n")]
    return [read_text(STDIN).removesuffix("\n") if each == STDIN else each for each in given]


def read_text(file: str) -> str:
    """The text of a file, or of stdin.

    Example: `read_text("book.txt")`.
    """
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        where = "stdin" if file == STDIN else file
        raise InputError(
            f"{where} is no text in UTF-8: byte {error.start:,} is {error.object[error.start]:#04x}"
        ) from None


def read_schema(given: str | None) -> str | None:
    """The schema that `--json-schema` names: a text that begins with { is one, anything else is a file.

    >>> read_schema('{"type": "integer"}')
    '{"type": "integer"}'
    """
    return given if given is None or given.lstrip().startswith("{") else read_text(given)


def check_form(schema: str | None, regex: str | None, lookahead: str | None) -> None:
    """An error for a form that cannot be followed, before a model is loaded.

    Example: `check_form(None, "yes|no", None)`.
    """
    if grammar_of(schema, regex) is not None and lookahead is not None:
        raise InputError("--lookahead cannot verify text of a given form: leave out one of both")


def check_options(
    sampling: Mapping[str, Any] | None, max_tokens: int | None, stop: Sequence[str], lookahead: str | None, guesses: int
) -> None:
    """An error for what no model takes, before one is loaded.

    Example: `check_options({"temperature": 0.7}, 100, (), "ngram", 7)`.
    """
    GenerationSettings().sampling(**(sampling or {}))
    token_limit(max_tokens)
    stop_strings(stop)
    guess_limit(guesses)
    if lookahead is not None and lookahead != NGRAM:
        located(str(path_of(lookahead)))


def make_prompt(tokenizer: Tokenizer, text: str, system: str | None, raw: bool) -> Prompt:
    """Messages for a model that chats, the text itself for one that does not or if it is to be taken as it is."""
    if raw or tokenizer.chat_template is None:
        if system is not None:
            raise InputError("--system cannot be told to the model: it has no chat template")
        return text
    opening = [{"role": "system", "content": system}] if system is not None else []
    return [*opening, {"role": "user", "content": text}]


def say(text: str) -> None:
    """Text to stdout at once."""
    print(text, end="", flush=True)


def _document(
    model: str | None,
    loaded: LanguageModel,
    text: str,
    tokens: list[int],
    last: GenerationResponse,
    sampling: dict[str, Any],
    stats: Stats,
) -> dict[str, Any]:
    numbers = {key: value for key, value in asdict(last).items() if key not in ("text", "token", "logprobs")}
    return {
        "model": model or str(shipped_model()),
        "device": loaded.device.name,
        "text": text,
        "tokens": tokens,
        **numbers,
        "sampling": sampling,
        "stats": stats.as_dict(),
    }


def _likely(tokenizer: Tokenizer, token: int, found: Logprobs) -> dict[str, Any]:
    """A token and the likeliest ones, with their texts, as OpenAI's responses have them; JSON has no infinity."""

    def row(index: int, logprob: float) -> dict[str, Any]:
        return {"id": index, "token": tokenizer.decode([index]), "logprob": max(logprob, _LEAST_LIKELY)}

    return {**row(token, found.chosen), "top_logprobs": [row(*each) for each in found.top]}
