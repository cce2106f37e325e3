"""`liveshape serve`: a language model over HTTP, with the APIs of OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liveshape.errors import InputError
from liveshape.export.runnable import Conversion
from liveshape.export.sources.hub import is_hub_name
from liveshape.export.sources.opening import located, runs_as_it_is
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.arguments import LOOKAHEAD_TOKENS
from liveshape.llm.batch.loading import SEQUENCES
from liveshape.llm.engine.speculative import NGRAM
from liveshape.llm.serving.answer_channel import AnswerChannel
from liveshape.llm.serving.async_engine import MAX_WAITING
from liveshape.llm.serving.engine_opening import engine_from
from liveshape.llm.serving.remote_engine import RemoteEngine
from liveshape.llm.text.unconverted import tokenizer_of
from liveshape.packages import need
from liveshape.shipped import shipped_model
from liveshape.tools.console import kernel_bar, upload_bar
from liveshape.tools.model_argument import AS_USUAL, check_source, open_lookahead, runnable_model
from liveshape.tools.text_arguments import check_options, read_text
from liveshape.tools.wrapping import wrapped

if TYPE_CHECKING:
    from liveshape.llm.serving.async_engine import AsyncEngine

HOST, PORT, GRACE = "127.0.0.1", 8000, 30


def serve(
    model: str | None,
    *,
    host: str = HOST,
    port: int = PORT,
    api_key: str | None = None,
    api_key_file: str | None = None,
    names: Sequence[str] = (),
    any_model: bool = False,
    cors: Sequence[str] = (),
    chat_template: str | None = None,
    max_sequences: int = SEQUENCES,
    cache_bytes: int | None = None,
    max_waiting: int = MAX_WAITING,
    grace: float = GRACE,
    device: str | None = None,
    embeddings: str | None = None,
    pooling: str | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    deterministic: bool = False,
    lookahead: str | None = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Serve a model until Ctrl-C or SIGTERM; exit code 0.

    Example: `serve("SmolLM2-135M-Instruct", port=8080)`.
    """
    need("starlette", "uvicorn", extra="serve", what="serving")
    from liveshape.llm.embedding.text_encoder import TextEncoder
    from liveshape.serve.authorization import LOOPBACK
    from liveshape.serve.embedder import Embedder
    from liveshape.serve.request_log import log, log_to_stderr
    from liveshape.serve.running import listening, serve_until_stopped, warm
    from liveshape.serve.service import Service, model_name

    check_options(None, None, (), lookahead, lookahead_tokens)
    if pooling is not None and embeddings is None:
        raise InputError(f"--pooling {pooling} is of an encoder: name it with --embeddings")
    for given in (model, embeddings):
        if given is not None and not is_hub_name(given):
            runs_as_it_is(located(given))  # what is no model is refused before anybody can ask
    key = _key(api_key, api_key_file)
    template = None if chat_template is None else read_text(chat_template)
    for source in filter(None, (model, embeddings)):
        check_source(source)
    local = host in LOOPBACK
    hosts = LOOPBACK if local else None
    service = Service(names or [model_name(model)], key, cors, hosts=hosts, any_model=any_model)

    opening = partial(
        _opened,
        str(shipped_model()) if model is None else model,
        conversion,
        lookahead,
        lookahead_tokens=lookahead_tokens,
        sequences=max_sequences,
        cache_bytes=cache_bytes,
        max_waiting=max_waiting,
        chat_template=template,
        device=device,
        half_cache=half_cache,
        activations=activations,
        deterministic=deterministic,
        max_context=conversion.max_context,
    )

    def encoder() -> TextEncoder:
        assert embeddings is not None
        with upload_bar() as progress:
            return TextEncoder.load(embeddings, device=device, pooling=pooling, progress=progress)

    def load() -> AsyncEngine:
        if embeddings is not None:
            service.embedder = Embedder(model_name(embeddings), encoder, max_waiting)
        engine = RemoteEngine(opening)
        log("engine", **asdict(engine.facts))
        try:
            warm(engine)
        except BaseException:
            asyncio.run(engine.close())
            raise
        return engine

    if not local and key is None:
        warning = f"warning: everybody who can reach {host} can use this server: --api-key-file FILE asks for a key"
        print(wrapped(warning, sys.stderr), file=sys.stderr)
    log_to_stderr()
    with listening(host, port) as bound:
        shown = f"[{host}]" if ":" in host else host
        log("listening", url=f"http://{shown}:{bound.getsockname()[1]}", key=key is not None)
        serve_until_stopped(service, load, bound, grace)
    return 0


def _opened(
    model: str, conversion: Conversion, lookahead: str | None, channel: AnswerChannel, **options: Any
) -> AsyncEngine:
    """The engine, in its own process."""
    from liveshape.serve.request_log import log, log_to_stderr

    log_to_stderr()
    opened = 0

    def folder() -> AbstractContextManager[Path]:
        nonlocal opened
        opened += 1
        if opened > 1:
            log("reopening")
        return runnable_model(model, conversion, tokenizer_of)

    def draft() -> Any:
        chosen = {name: options[name] for name in ("device", "half_cache", "activations")}
        return open_lookahead(lookahead, **chosen, conversion=conversion)

    with upload_bar() as progress, kernel_bar() as kernels:
        return engine_from(
            folder,
            lookahead=lookahead if lookahead is None or lookahead == NGRAM else draft,
            channel=channel,
            progress=progress,
            kernels=kernels,
            **options,
        )


def _key(given: str | None, file: str | None) -> str | None:
    """The key, as it is given or from a file."""
    if given is not None and file is not None:
        raise InputError("--api-key and --api-key-file were given: give one of them")
    key = given if file is None else read_text(file).strip()
    if key is not None and (not key.strip() or not key.isascii() or not key.isprintable()):
        raise InputError("a key is a word of letters, digits and signs that a header can have; this one is none")
    return key
