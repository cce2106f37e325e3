"""`liveshape chat`: multi-turn chat in the terminal, with the keys of mlx_lm.chat (q, r, h) and slash commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from liveshape.errors import InputError, counted
from liveshape.export.runnable import Conversion
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.arguments import LOOKAHEAD_TOKENS
from liveshape.llm.generation.conversation import Conversation
from liveshape.llm.generation.responses import GenerationResponse, acceptance_text
from liveshape.llm.generation.stats import Stats
from liveshape.llm.program.context import larger_context
from liveshape.tools.chat_commands import SETTINGS, command_of, run_command
from liveshape.tools.console import has_colours, say
from liveshape.tools.interrupts import interruptible
from liveshape.tools.model_argument import AS_USUAL, device_text, open_lookahead, open_model
from liveshape.tools.prompt_cache import check_prompt_cache, keep_prompt_cache, take_prompt_cache
from liveshape.tools.text_arguments import check_form, check_options, read_schema, read_text
from liveshape.tools.wrapping import wrapped

_HELP = f"""\
q, /quit        leave (Ctrl-D too)
r, /reset       start over
h, /help        this list
/save FILE      write the conversation to a file, as JSON
/load FILE      go on with the conversation of a file
/set NAME VALUE change a setting: {", ".join(SETTINGS)}; alone, it shows them
a line that ends with \\ goes on in the next one, a text between \"\"\" is one message
Ctrl-C          stop the answer; anything else is said to the model"""

_QUOTES = '"""'
_WORDS = {
    **dict.fromkeys(("q", "/q", "/quit", "/exit", "/bye"), "quit"),
    **dict.fromkeys(("r", "/r", "/reset", "/clear"), "reset"),
    **dict.fromkeys(("h", "/h", "/help", "/?"), "help"),
}


def chat(
    model: str | None,
    *,
    system: str | None = None,
    chat_template: str | None = None,
    device: str | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
    sampling: Mapping[str, Any] | None = None,
    logit_bias: Mapping[int, float] | None = None,
    lookahead: str | None = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    prompt_cache: str | None = None,
    json_schema: str | None = None,
    regex: str | None = None,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Chat until `q` or end of input. An error in one message does not end the chat: exit code 0, or 1 if there was an
    error and stdin is no terminal.

    Example: `chat("SmolLM2-135M-Instruct", system="Be brief.")`.
    """
    check_options(sampling, max_tokens, stop, lookahead, lookahead_tokens)
    check_prompt_cache(prompt_cache)
    schema = read_schema(json_schema)
    check_form(schema, regex, lookahead, logit_bias)
    template = None if chat_template is None else read_text(chat_template)
    loaded, tokenizer = open_model(model, device, half_cache, activations, conversion, sampling=sampling or {})
    if template is not None:
        tokenizer = tokenizer.with_chat_template(template)
    talk = Conversation(loaded, tokenizer, system=system, drop_oldest=True)
    drafter = open_lookahead(lookahead, device, half_cache, activations, conversion)
    take_prompt_cache(loaded, prompt_cache)
    ahead = {"lookahead": drafter, "lookahead_tokens": lookahead_tokens}
    form = {"json_schema": schema, "regex": regex, "logit_bias": logit_bias}
    options: dict[str, Any] = {"max_tokens": max_tokens, "stop": stop, **ahead, **form, **(sampling or {})}
    if tokenizer.chat_template is None:
        note("this model has no chat template: it continues your text")
    note(device_text(loaded))
    note("q quits, r starts over, h helps; Ctrl-C stops an answer")
    failed = False
    while (text := _read()) is not None:
        word = _WORDS.get(text.strip().lower())
        if word == "quit":
            break
        try:
            if word == "reset":
                talk.reset()
                note("started over")
            elif word == "help":
                note(_HELP)
            elif (command := command_of(text)) is not None:
                note(run_command(command, talk, options))
            elif text.strip():
                _answer(talk, text, options)
        except InputError as error:  # a message that is too long, or that the chat template refuses
            failed = True
            note(f"liveshape: {error}\nr starts over")
    keep_prompt_cache(loaded, prompt_cache)
    return 1 if failed and not sys.stdin.isatty() else 0


def _answer(talk: Conversation, text: str, options: Mapping[str, Any]) -> None:
    stats = Stats()
    responses = talk.ask(text, stats=stats, **options)
    if talk.dropped:
        advice = larger_context(talk.model.trained_context, talk.model.max_context)
        note(
            f"the context of {talk.model.max_context:,} tokens is full: the oldest {counted(talk.dropped, 'message')} "
            f"{'is' if talk.dropped == 1 else 'are'} dropped; for a longer conversation, {advice}"
        )
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
            f"context {talk.context_used:,} of {talk.model.max_context:,}{acceptance_text(stats, '; ')}"
        )


def note(text: str) -> None:
    """Print a note to stderr, dimmed: stdout is for the conversation."""
    dim, plain = ("\033[2m", "\033[0m") if has_colours(sys.stderr) else ("", "")
    print(f"{dim}{wrapped(text, sys.stderr)}{plain}", file=sys.stderr, flush=True)


def _read() -> str | None:
    """Read the next message, of one line or several; None at end of input and at Ctrl-C."""
    text = _read_line(">> ")
    if text is None:
        return None
    if text.lstrip().startswith(_QUOTES):
        text = text.lstrip().removeprefix(_QUOTES)
        while not text.rstrip().endswith(_QUOTES) and (more := _read_line(".. ")) is not None:
            text += f"\n{more}"
        return text.rstrip().removesuffix(_QUOTES).strip("\n")
    while text.endswith("\\") and (more := _read_line(".. ")) is not None:
        text = f"{text[:-1]}\n{more}"
    return text


def _read_line(prompt: str) -> str | None:
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal:
        with suppress(ImportError):
            import readline  # noqa: F401  # line editing and history
    try:
        return input(prompt if terminal else "")
    except (EOFError, KeyboardInterrupt):
        if terminal:
            print()
        return None
