"""`generate`: the whole text of a prompt, or of many prompts at once, one sequence each in one graph where that can be.

from liveshape.llm import generate, load

model, tokenizer = load("SmolLM2-135M-Instruct")
for text in generate(model, tokenizer, ["Once upon a time", "There was"], max_tokens=100):
    print(text)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeGuard, Unpack, overload

from liveshape.errors import DeviceError, InputError, UnsupportedError
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.options import NAMES, GenerationOptions, Prompt, Prompts
from liveshape.llm.generation.prompts import is_batch
from liveshape.llm.generation.responses import GenerationResponse, speed_text
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.option_names import checks_options

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel
    from liveshape.llm.serving.async_engine import AsyncEngine

# What watches one text as it grows, or has a state of its own: prompts run one after the other with these.
_ONE_BY_ONE = ("streamer", "stats", "keep_prefix", "lookahead", "sampler", "logits_processors")


@overload
def generate(
    model: LanguageModel | AsyncEngine,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    verbose: bool = ...,
    **options: Unpack[GenerationOptions],
) -> str: ...


@overload
def generate(
    model: LanguageModel | AsyncEngine,
    tokenizer: Tokenizer,
    prompt: Prompts,
    *,
    verbose: bool = ...,
    **options: Unpack[GenerationOptions],
) -> list[str]: ...


@checks_options(*NAMES)
def generate(
    model: LanguageModel | AsyncEngine,
    tokenizer: Tokenizer,
    prompt: Prompt | Prompts,
    *,
    verbose: bool = False,
    **options: Unpack[GenerationOptions],
) -> str | list[str]:
    """Generate the whole text for a prompt; the options are those of `stream_generate`, `verbose` prints as it streams.

    A list of prompts gives a list of texts in its order, with the same options for all. They run together on an engine
    of `open_engine`, if one is given as the model. Those of a model run together on a second copy of its program, which
    is loaded from the same bytes to the same device and freed at the end; they run one after the other where the
    program cannot be batched, where there is no memory for it, and with `verbose`, `streamer`, `stats`, `keep_prefix`,
    `lookahead`, `sampler` or `logits_processors`. For many lists, an engine is loaded once.

    Example: `generate(model, tokenizer, "Once upon a time", max_tokens=100, seed=7)`.
    """
    prompts: Sequence[Any] = prompt if is_batch(prompt) else [prompt]
    if _is_engine(model):
        if tokenizer is not model.tokenizer:
            raise InputError("an engine has a tokenizer of its own: give it as generate(engine, engine.tokenizer, ...)")
        texts = _run(_together(model, prompts, options))
        if verbose:
            print(*texts, sep="\n")
    else:
        texts = _of_model(model, tokenizer, prompts, verbose, options)
    return texts if is_batch(prompt) else texts[0]


def _is_engine(model: Any) -> TypeGuard[AsyncEngine]:
    return hasattr(model, "facts")


def _of_model(
    model: Any, tokenizer: Tokenizer, prompts: Sequence[Any], verbose: bool, options: GenerationOptions
) -> list[str]:
    # All of them are validated before anything is computed.
    streams = [stream_generate(model, tokenizer, each, **options) for each in prompts]
    if len(prompts) > 1 and not verbose and not any(options.get(name) for name in _ONE_BY_ONE):
        texts = _batched(model, tokenizer, prompts, options)
        if texts is not None:
            return texts

    def text(responses: Iterator[GenerationResponse]) -> str:
        pieces = []
        response = None
        for response in responses:
            pieces.append(response.text)
            if verbose:
                print(response.text, end="", flush=True)
        if verbose and response is not None:
            print(f"\n{speed_text(response, options.get('stats'))}")
        return "".join(pieces)

    # The lock is held for a whole text: threads that share a model do not interleave theirs.
    return [model.lock.run(text, stream) for stream in streams]


def _batched(
    model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Any], options: GenerationOptions
) -> list[str] | None:
    """The texts of all prompts, from a runner of many sequences; None where there can be none."""
    from liveshape.llm.batch.loading import SEQUENCES, load_runner
    from liveshape.llm.serving.batch_engine import BatchEngine

    origin = model.origin
    if origin.view is None:
        return None
    sequences = min(len(prompts), SEQUENCES)
    try:
        runner, description = load_runner(origin.view, device=model.device, sequences=sequences, **origin.options)
    except UnsupportedError:
        return None
    except DeviceError:
        if model.device.lost:
            raise
        return None  # no memory for another copy

    async def run() -> list[str]:
        engine = BatchEngine(runner, tokenizer, description)
        try:
            return await _together(engine, prompts, options)
        finally:
            await engine.close()

    return _run(run())


async def _together(engine: AsyncEngine, prompts: Sequence[Any], options: GenerationOptions) -> list[str]:
    """The texts of all prompts, in their order; no more of them are queued at once than an engine takes."""
    room = asyncio.Semaphore(2 * engine.facts.sequences)

    async def text(prompt: Prompt) -> str:
        async with room, aclosing(engine.generate(prompt, **options)) as answer:
            return "".join([response.text async for response in answer])

    return await asyncio.gather(*(text(prompt) for prompt in prompts))


def _run(texts: Coroutine[Any, Any, list[str]]) -> list[str]:
    """Wait for texts, in a notebook too, whose thread has an event loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(texts)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, texts).result()
