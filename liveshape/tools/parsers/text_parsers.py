"""Argument parsers of `generate`, `chat` and `perplexity`."""

from __future__ import annotations

import argparse
from typing import Any

from liveshape.graph.activation_kinds import AUTO
from liveshape.tools.console import stage
from liveshape.tools.parsers.flags import (
    SOURCES,
    Add,
    add_activations,
    add_conversion,
    bias,
    conversion_of,
    natural,
    positive,
    positive_or_all,
    seed,
)

_GENERATE = f"""\
MODEL is a folder with model.pte and tokenizer.json, or a .pte beside its tokenizer; without it, the shipped one.
{SOURCES}
A prompt is a user message where the model has a chat template; with --raw it is a text to be continued.
Several -p are answered one after the other, each below a line with its prompt; --json prints a list then.
What is not given is as the model's generation_config.json recommends.
Text goes to stdout as it comes, tokens per second to stderr.
--prompt-cache FILE is made if it is not there. The common prefix of it and the prompt is not computed again, and at
the end it holds the prompt and the text. A FILE of another model, or that is no cache, is an error and stays as it is.

examples:
  liveshape generate -p "Once upon a time"
  liveshape generate SmolLM2-135M-Instruct -p "Why is the sky blue?" --system "Be brief." --temp 0.7 --seed 1
  liveshape generate model-folder -f prompt.txt -n 500 --raw --stop "The end"
  git diff | liveshape generate model-folder -p - --json
  liveshape generate model-folder -f book.txt --prompt-cache book.cache          sooner the second time
  liveshape generate model-folder -p "A cat, as JSON." --json-schema cat.json
  liveshape generate model-folder -f code.py --lookahead ngram       the same text, sooner where it repeats itself"""

_CHAT = f"""\
MODEL is as of `liveshape generate`. {SOURCES}
Each turn computes only what is new. q quits, r starts over, h helps; Ctrl-C stops the answer alone.
A line that ends with \\ goes on in the next one; a text between \"\"\" is one message. /save FILE and /load FILE keep a
conversation, /set temp 0.7 changes a setting. Where the context is full, the oldest turns are dropped.
From a pipe, each line is a message, and the exit status is 1 if one of them could not be answered.
--prompt-cache FILE is as of `liveshape generate`, saved when you leave: the system prompt is there at once next time.

examples:
  liveshape chat SmolLM2-135M-Instruct
  liveshape chat SmolLM2-135M-Instruct.Q4_1.gguf --max-context 4096
  liveshape chat model-folder --system "You are a pirate." --temp 0.8 --top-p 0.9"""

_PERPLEXITY = """\
MODEL is a folder or a .pte beside its tokenizer, as of `liveshape generate`; FILE is a text, - is stdin.
The rule is that of llama.cpp's command: windows of --context tokens that do not overlap, each from an empty cache and
begun as the tokenizer begins texts; the second half of each counts, what is left after the last whole one does not.
The number after ± is the deviation of the estimate. Compare models of one tokenizer, and runs of one --context, alone.

examples:
  liveshape perplexity SmolLM2-135M-Instruct book.txt
  liveshape perplexity SmolLM2-135M-Instruct book.txt --activations int8      what does rounding cost?
  cat *.md | liveshape perplexity model-folder - --context 256 --json"""


def add_commands(add: Add) -> None:
    """Add the subcommands' parsers.

    Example: `add_commands(add)`, before `parser.parse_args()`.
    """
    generating = add("generate", "generate text from a prompt", _GENERATE, _run_generate)
    _add_language_model(generating, max_tokens=256)
    generating.add_argument(
        "-p", "--prompt", metavar="TEXT", action="append", help="the prompt; - is stdin; may be repeated"
    )
    generating.add_argument("-f", "--file", metavar="FILE", help="a file with the prompt")
    generating.add_argument("--raw", action="store_true", help="take the prompt as it is, without the chat template")
    generating.add_argument("--json", action="store_true", help="print JSON")
    generating.add_argument(
        "--logprobs", metavar="N", type=natural, help="with --json: log-probabilities of each token and of the top N"
    )

    chatting = add("chat", "talk to a language model", _CHAT, _run_chat)
    _add_language_model(chatting, max_tokens=-1)

    measuring = add("perplexity", "measure the perplexity of a model on a text", _PERPLEXITY, _run_perplexity)
    measuring.add_argument("model", metavar="MODEL", help="a folder, a .pte, or a checkpoint to convert")
    measuring.add_argument("file", metavar="FILE", help="a text; - is stdin")
    measuring.add_argument(
        "-c", "--context", metavar="N", type=positive, help="tokens of a window (default 512, or the model's)"
    )
    measuring.add_argument("--half-cache", action="store_true", help="float16 KV cache")
    add_activations(measuring, AUTO)
    add_conversion(measuring)
    measuring.add_argument("--json", action="store_true", help="print JSON")


def _add_language_model(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    most = "while there is context" if max_tokens < 0 else max_tokens
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a folder, a .pte, or a checkpoint to convert")
    parser.add_argument(
        "-n",
        "--max-tokens",
        metavar="N",
        type=positive_or_all,
        default=max_tokens,
        help=f"tokens to generate at most, -1: to the end of the context (default {most})",
    )
    parser.add_argument("-sys", "--system", "--system-prompt", metavar="TEXT", help="the system prompt")
    parser.add_argument("--chat-template", metavar="FILE", help="a jinja template for messages, instead of the model's")
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help="stop string; may be repeated")
    parser.add_argument("--temp", "--temperature", metavar="T", type=float, help="sampling temperature; 0 is greedy")
    parser.add_argument("--top-k", metavar="K", type=int, help="sample from the K most likely tokens; 0 is off")
    parser.add_argument("--top-p", metavar="P", type=float, help="nucleus sampling: cumulative probability; 1 is off")
    parser.add_argument(
        "--min-p", metavar="P", type=float, help="minimum probability, relative to the most likely token; 0 is off"
    )
    parser.add_argument(
        "--repeat-penalty", "--repetition-penalty", metavar="R", type=float, help="repetition penalty; 1 is off"
    )
    parser.add_argument(
        "--frequency-penalty",
        metavar="F",
        type=float,
        help="off a logit for each time its token was generated; 0 is off",
    )
    parser.add_argument(
        "--presence-penalty", metavar="F", type=float, help="off the logit of every token that was generated; 0 is off"
    )
    parser.add_argument(
        "--logit-bias",
        metavar="TOKEN:BIAS",
        type=bias,
        action="append",
        default=[],
        help="added to the logit of a token id, -100 to 100; may be repeated",
    )
    parser.add_argument(
        "-s", "--seed", metavar="N", type=seed, help="random seed: the same one gives the same text; -1 draws one"
    )
    parser.add_argument("--prompt-cache", metavar="FILE", help="reuse the KV cache saved there, and save it at the end")
    parser.add_argument(
        "--json-schema",
        metavar="FILE|TEXT",
        help="constrained decoding: JSON of this schema (needs the extra `constrain`)",
    )
    parser.add_argument("--regex", metavar="TEXT", help="constrained decoding: text that matches (the same extra)")
    parser.add_argument("--half-cache", action="store_true", help="float16 KV cache: half of the memory")
    add_activations(parser, AUTO)
    add_conversion(parser)
    parser.add_argument(
        "--lookahead",
        metavar="HOW",
        help="speculative decoding: ngram, or the folder of a draft model with this tokenizer; the same text, sooner, "
        "but with --activations int8 near ties may be sampled otherwise",
    )
    parser.add_argument(
        "--lookahead-tokens", metavar="K", type=positive, default=7, help="draft tokens per step (default 7)"
    )


def _language_model(arguments: argparse.Namespace) -> dict[str, Any]:
    """The shared keyword arguments of `generate` and `chat`."""
    return {
        "system": arguments.system,
        "chat_template": arguments.chat_template,
        "device": arguments.device,
        "half_cache": arguments.half_cache,
        "activations": arguments.activations,
        "max_tokens": arguments.max_tokens,
        "stop": arguments.stop,
        "lookahead": arguments.lookahead,
        "lookahead_tokens": arguments.lookahead_tokens,
        "prompt_cache": arguments.prompt_cache,
        "json_schema": arguments.json_schema,
        "regex": arguments.regex,
        "conversion": conversion_of(arguments),
        "logit_bias": dict(arguments.logit_bias),
        "sampling": {
            "temperature": arguments.temp,
            "top_k": arguments.top_k,
            "top_p": arguments.top_p,
            "min_p": arguments.min_p,
            "repetition_penalty": arguments.repeat_penalty,
            "frequency_penalty": arguments.frequency_penalty,
            "presence_penalty": arguments.presence_penalty,
            "seed": arguments.seed,
        },
    }


# Lazy imports: `--help` loads no command's modules.


def _run_generate(arguments: argparse.Namespace) -> int:
    with stage("starting"):
        from liveshape.tools.commands.generate import generate

    return generate(
        arguments.model,
        prompt=arguments.prompt,
        prompt_file=arguments.file,
        raw=arguments.raw,
        as_json=arguments.json,
        logprobs=arguments.logprobs,
        **_language_model(arguments),
    )


def _run_chat(arguments: argparse.Namespace) -> int:
    with stage("starting"):
        from liveshape.tools.commands.chat import chat

    return chat(arguments.model, **_language_model(arguments))


def _run_perplexity(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.perplexity import perplexity

    return perplexity(
        arguments.model,
        arguments.file,
        context=arguments.context,
        activations=arguments.activations,
        half_cache=arguments.half_cache,
        device=arguments.device,
        as_json=arguments.json,
        conversion=conversion_of(arguments),
    )
