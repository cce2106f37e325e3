"""Argument parser of `serve`."""

from __future__ import annotations

import argparse

from liveshape.graph.activation_kinds import AUTO
from liveshape.tools.parsers.flags import (
    SOURCES,
    Add,
    add_activations,
    add_conversion,
    conversion_of,
    natural,
    port,
    positive,
    size,
)

_SERVE = f"""\
MODEL is as of `liveshape generate`; without it, the shipped one. {SOURCES}
Clients of OpenAI's API find it at /v1, those of Anthropic's at /v1/messages; / is a page to chat on. /health says
whether it works, /metrics is for Prometheus. The log goes to stderr, a line of JSON for each request.
Only this machine is answered unless --host says otherwise. Ctrl-C and SIGTERM let running answers end.

examples:
  liveshape serve SmolLM2-135M-Instruct
  liveshape serve model.gguf --port 8080 --max-context 8192 --cache-size 4GiB
  liveshape serve model-folder --host 0.0.0.0 --api-key-file key.txt
  curl http://127.0.0.1:8000/v1/chat/completions -d '{{"messages": [{{"role": "user", "content": "Hi"}}]}}'"""


def add_commands(add: Add) -> None:
    """Add the subcommand's parser.

    Example: `add_commands(add)`, before `parser.parse_args()`.
    """
    serving = add("serve", "serve a language model over HTTP (the extra `serve`)", _SERVE, _run_serve)
    serving.add_argument("model", metavar="MODEL", nargs="?", help="a folder, a .pte, or what is converted")
    serving.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    serving.add_argument("--port", metavar="N", type=port, default=8000, help="0 is any (default 8000)")
    serving.add_argument(
        "--api-key", metavar="KEY", help="the key that every request must have, but /health and the page"
    )
    serving.add_argument("--api-key-file", metavar="FILE", help="a file with the key, which no list of processes shows")
    serving.add_argument(
        "--name", metavar="NAME", action="append", default=[], help="what clients call the model; may be repeated"
    )
    serving.add_argument(
        "--any-model",
        action="store_true",
        help="answer requests for any name of a model (gpt-4o-mini); else those for another one are refused",
    )
    serving.add_argument(
        "--cors", metavar="ORIGIN", action="append", default=[], help="a site whose pages may ask; * is any; repeatable"
    )
    serving.add_argument(
        "--max-sequences", metavar="N", type=positive, default=64, help="sequences that run together (default 64)"
    )
    serving.add_argument(
        "--cache-size",
        metavar="SIZE",
        type=size,
        help="memory of the KV cache that they share, such as 4GiB (default 2GiB; 256MiB on a software adapter)",
    )
    serving.add_argument(
        "--max-waiting", metavar="N", type=natural, default=256, help="requests that wait (default 256)"
    )
    serving.add_argument(
        "--grace", metavar="SECONDS", type=natural, default=30, help="for running answers to end (default 30)"
    )
    serving.add_argument(
        "--chat-template", metavar="FILE", help="a jinja template for messages, instead of the model's"
    )
    serving.add_argument(
        "--embeddings",
        metavar="ENCODER",
        help="a second program for /v1/embeddings: a .pte with tokenizer.json beside it",
    )
    serving.add_argument(
        "--pooling",
        choices=("mean", "cls", "last", "none"),
        help="of its hidden states (default: as its 1_Pooling/config.json says, or mean)",
    )
    serving.add_argument("--half-cache", action="store_true", help="keep the cache in float16: half of its memory")
    add_activations(serving, AUTO)
    serving.add_argument(
        "--deterministic",
        action="store_true",
        help="the same bytes whatever runs beside a sequence: sums have one order for any number of rows; slower",
    )
    add_conversion(serving)
    serving.add_argument(
        "--lookahead",
        metavar="HOW",
        help="speculative decoding: ngram, or the folder of a draft model, which serves one sequence at a time",
    )
    serving.add_argument(
        "--lookahead-tokens", metavar="K", type=positive, default=7, help="draft tokens at a time (default 7)"
    )


# Lazy import: `--help` loads no command's modules.


def _run_serve(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.serve import serve

    return serve(
        arguments.model,
        host=arguments.host,
        port=arguments.port,
        api_key=arguments.api_key,
        api_key_file=arguments.api_key_file,
        names=arguments.name,
        any_model=arguments.any_model,
        cors=arguments.cors,
        chat_template=arguments.chat_template,
        max_sequences=arguments.max_sequences,
        cache_bytes=arguments.cache_size,
        max_waiting=arguments.max_waiting,
        grace=arguments.grace,
        device=arguments.device,
        half_cache=arguments.half_cache,
        activations=arguments.activations,
        deterministic=arguments.deterministic,
        embeddings=arguments.embeddings,
        pooling=arguments.pooling,
        lookahead=arguments.lookahead,
        lookahead_tokens=arguments.lookahead_tokens,
        conversion=conversion_of(arguments),
    )
