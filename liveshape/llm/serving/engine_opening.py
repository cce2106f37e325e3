"""A model as an asynchronous engine: many sequences in one graph where that can be proved right, else one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from liveshape.errors import InputError, UnsupportedError
from liveshape.export.runnable import Conversion, runnable
from liveshape.llm.arguments import LOOKAHEAD_TOKENS, path_of
from liveshape.llm.batch.loading import SEQUENCES, load_runner
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.engine.speculative import NGRAM
from liveshape.llm.generation.generating import load, lookahead_options, warm_up_loaded
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.program.token_graph import Description
from liveshape.llm.serving.answer_channel import AnswerChannel
from liveshape.llm.serving.async_engine import MAX_WAITING, AsyncEngine
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.queued_answer import LOCAL
from liveshape.llm.serving.serial_engine import SerialEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.llm.text.unconverted import tokenizer_of
from liveshape.option_names import checks_options
from liveshape.progress import Progress

Folder = Callable[[], AbstractContextManager[Path]]


@checks_options("device", "half_cache", "activations", "deterministic")
def open_engine(
    path: str | os.PathLike[str],
    *,
    sequences: int = SEQUENCES,
    cache_bytes: int | None = None,
    max_context: int | None = None,
    max_waiting: int = MAX_WAITING,
    lookahead: str | os.PathLike[str] | None = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    chat_template: str | None = None,
    quant: Any = None,
    cache: bool = True,
    progress: Progress | None = None,
    kernels: Progress | None = None,
    **options: Any,
) -> AsyncEngine:
    """Open a model, as `load` does, for many requests at once: `async for response in engine.generate(...)`.

    Up to `sequences` of them, at most the rows of a step that the file allows, run together on a KV cache of
    `cache_bytes` in pages; `max_waiting` more wait. `max_context` bounds each sequence and costs no memory.
    `options` are `device`, `half_cache`, `activations` (auto, float32, float16 or int8) and `deterministic`: the same
    bytes whatever runs beside it.
    `progress` and `kernels` are as of `load`.
    `lookahead` is speculative decoding: "ngram", or the path of a draft model. With a draft model, or where the program
    cannot be batched, requests run one at a time; `engine.facts` says why. After a device loss the model is opened
    again.

    Example: `engine = open_engine("SmolLM2-135M-Instruct", sequences=16)`.
    """
    conversion = Conversion(quant, max_context, cache)
    source, told = str(path_of(path)), progress or (lambda done, total: None)

    def draft() -> Any:
        return load(path_of(lookahead), max_context=max_context, **options)

    return engine_from(
        lambda: runnable(source, conversion, told, check=tokenizer_of),
        lookahead=lookahead if lookahead is None or lookahead == NGRAM else draft,
        lookahead_tokens=lookahead_tokens,
        sequences=sequences,
        cache_bytes=cache_bytes,
        max_waiting=max_waiting,
        chat_template=chat_template,
        max_context=max_context,
        progress=progress,
        kernels=kernels,
        **options,
    )


def engine_from(
    folder: Folder,
    *,
    lookahead: Any = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    sequences: int = SEQUENCES,
    cache_bytes: int | None = None,
    max_waiting: int = MAX_WAITING,
    chat_template: str | None = None,
    channel: AnswerChannel = LOCAL,
    kernels: Progress | None = None,
    **options: Any,
) -> AsyncEngine:
    """An engine of the folder that `folder` provides while the model is loaded, now and again after a device loss.

    It is warmed up for its first request, which `kernels` counts.

    `lookahead` is "ngram", or opens the model that speculative decoding takes its guesses from.

    Example: `engine_from(lambda: runnable("model.gguf", Conversion()), sequences=16)`.
    """
    if sequences < 1:
        raise InputError(f"{sequences} sequences: at least one is needed")

    def runner_again() -> BatchRunner:
        with folder() as path:
            return runner_of(path)[0]

    def runner_of(path: Path) -> tuple[BatchRunner, Description]:
        return load_runner(path, sequences=sequences, cache_bytes=cache_bytes, **options)

    def model_of(path: Path) -> tuple[LanguageModel, Any]:
        model = LanguageModel.load(path, **options)
        drafter: Any = None
        try:
            drafter = lookahead() if callable(lookahead) else lookahead
            lookahead_options(model, tokenizer, drafter, lookahead_tokens, None)  # here, and not at each request
            return model, drafter
        except BaseException:
            for each in (model, *(drafter[:1] if isinstance(drafter, tuple) else ())):
                each.close()
            raise

    def model_again() -> tuple[LanguageModel, Any]:
        with folder() as path:
            return model_of(path)

    with folder() as path:
        tokenizer = Tokenizer.load(path)  # first: cheap, and fails before weights are uploaded
        if chat_template is not None:
            tokenizer = tokenizer.with_chat_template(chat_template)
        reason = _asked_for_one(sequences, callable(lookahead))
        if reason is None:
            try:
                runner, description = runner_of(path)
                with ExitStack() as held:
                    held.callback(runner.close)
                    runner.warm_up([tokenizer.generation.sampling()], kernels)
                    engine = BatchEngine(
                        runner,
                        tokenizer,
                        description,
                        max_waiting=max_waiting,
                        lookahead=lookahead,
                        lookahead_tokens=lookahead_tokens,
                        reload=runner_again,
                        channel=channel,
                    )
                    held.pop_all()
                    return engine
            except UnsupportedError as error:
                reason = str(error)
        model, drafter = model_of(path)
        warm_up_loaded(model, tokenizer, kernels)
        return SerialEngine(
            model,
            tokenizer,
            max_waiting=max_waiting,
            lookahead=drafter,
            lookahead_tokens=lookahead_tokens,
            reload=model_again,
            owned=True,
            reason=reason,
            channel=channel,
        )


def _asked_for_one(sequences: int, draft_model: bool) -> str | None:
    """Why one sequence at a time is what was asked for."""
    if draft_model:
        return "speculative decoding with a draft model (lookahead) is for one sequence"
    return "one sequence was asked for" if sequences == 1 else None
