"""`liveshape chat`: a conversation in the terminal, with the three letters of mlx_lm.chat."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from liveshape.errors import InputError, counted
from liveshape.export.runnable import Conversion
from liveshape.llm.arguments import LOOKAHEAD_TOKENS
from liveshape.llm.chat import Conversation
from liveshape.llm.responses import GenerationResponse, guesses_text
from liveshape.llm.stats import Stats
from liveshape.tools.console import has_colours
from liveshape.tools.generate import (
    AS_USUAL,
    check_form,
    check_options,
    open_lookahead,
    open_model,
    read_schema,
    say,
)
from liveshape.tools.interrupts import interruptible
from liveshape.tools.prompt_cache import check_prompt_cache, keep_prompt_cache, take_prompt_cache
from liveshape.tools.wrapping import wrapped

_HELP = """\
q, /quit    leave (Ctrl-D too)
r, /reset   start over
h, /help    this list
Ctrl-C      stop the answer; anything else is said to the model"""

_WORDS = {
    **dict.fromkeys(("q", "/q", "/quit", "/exit", "/bye"), "quit"),
    **dict.fromkeys(("r", "/r", "/reset", "/clear"), "reset"),
    **dict.fromkeys(("h", "/h", "/help", "/?"), "help"),
}


def chat(
    model: str | None,
    *,
    system: str | None = None,
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
    conversion: Conversion = AS_USUAL,
) -> int:
    """Talk until `q` or the end of the input; 0 always, as a wrong turn does not end a conversation.

    Example: `chat("SmolLM2-135M-Instruct", system="Be brief.")`.
    """
    check_options(sampling, max_tokens, stop, lookahead, lookahead_tokens)
    check_prompt_cache(prompt_cache)
    schema = read_schema(json_schema)
    check_form(schema, regex, lookahead)
    loaded, tokenizer = open_model(model, device, half_cache, activations, conversion)
    talk = Conversation(loaded, tokenizer, system=system)
    guesser = open_lookahead(lookahead, device, half_cache, activations, conversion)
    take_prompt_cache(loaded, prompt_cache)
    ahead = {"lookahead": guesser, "lookahead_tokens": lookahead_tokens}
    form = {"json_schema": schema, "regex": regex}
    options = {"max_tokens": max_tokens, "stop": stop, **ahead, **form, **(sampling or {})}
    if tokenizer.chat_template is None:
        note("this model has no chat template: it continues your text")
    note("q quits, r starts over, h helps; Ctrl-C stops an answer")
    while (text := _read()) is not None:
        word = _WORDS.get(text.strip().lower())
        if word == "quit":
            break
        if word == "reset":
            talk.reset()
            note("started over")
        elif word == "help":
            note(_HELP)
        elif text.strip():
            try:
                _answer(talk, text, options)
            except InputError as error:  # a turn that is too long, or that the template refuses
                note(f"liveshape: {error}\nr starts over")
    keep_prompt_cache(loaded, prompt_cache)
    return 0


def _answer(talk: Conversation, text: str, options: Mapping[str, Any]) -> None:
    stats = Stats()
    responses = talk.ask(text, stats=stats, **options)
    last: GenerationResponse | None = None
    with interruptible() as interrupted:
        for last in responses:
            say(last.text)
            if interrupted():
                break
        responses.close()
    say("\n")
    if last is not None:
        note(
            f"{counted(last.generation_tokens, 'token')}, {last.generation_tps:,.1f} tokens/s; "
            f"prompt {last.prompt_tps:,.1f} tokens/s; "
            f"context {talk.context_used:,} of {talk.model.max_context:,}{guesses_text(stats, '; ')}"
        )


def note(text: str) -> None:
    """What is not of the conversation goes to stderr, and there it is dim."""
    dim, plain = ("\033[2m", "\033[0m") if has_colours(sys.stderr) else ("", "")
    print(f"{dim}{wrapped(text, sys.stderr)}{plain}", file=sys.stderr, flush=True)


def _read() -> str | None:
    """The next line, or None at the end of the input; Ctrl-C at the prompt leaves as well."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal:
        with suppress(ImportError):
            import readline  # noqa: F401  # editing and history of the line
    try:
        return input(">> " if terminal else "")
    except (EOFError, KeyboardInterrupt):
        if terminal:
            print()
        return None
