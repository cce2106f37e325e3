"""Language models: text generation from one graph with its KV cache on the GPU.

    from liveshape.llm import load, stream_generate

    model, tokenizer = load("SmolLM2-135M-Instruct")          # model.pte with tokenizer.json beside it
    for response in stream_generate(model, tokenizer, "Why is the sky blue?"):
        print(response.text, end="", flush=True)

Many requests at once share one model, each an asynchronous stream of its own:

    engine = open_engine("SmolLM2-135M-Instruct", cache_bytes=4 << 30)
    async for response in engine.generate("Why is the sky blue?"):
        print(response.text, end="", flush=True)

Text needs the extra `llm`: `pip install 'liveshape[llm]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from liveshape.llm.generation.conversation import Conversation
from liveshape.llm.generation.generating import load, stream_generate
from liveshape.llm.generation.logprobs import Logprobs
from liveshape.llm.generation.options import GenerationOptions
from liveshape.llm.generation.prompts import ContextError
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.generation.stats import Stats
from liveshape.llm.many_prompts import generate
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.text.tokenizer import StreamDecoder, Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel
    from liveshape.llm.serving.engine_opening import open_engine
    from liveshape.llm.serving.engine_sequence import EngineSequence

__all__ = [
    "ContextError",
    "Conversation",
    "EngineSequence",
    "GenerationOptions",
    "GenerationResponse",
    "LanguageModel",
    "Logprobs",
    "Sampling",
    "Stats",
    "StreamDecoder",
    "Tokenizer",
    "generate",
    "load",
    "open_engine",
    "stream_generate",
]


def __getattr__(name: str) -> Any:
    # Imported lazily: the tokenizer is of use without the runtime.
    if name == "LanguageModel":
        from liveshape.llm.language_model import LanguageModel

        return LanguageModel
    if name == "open_engine":
        from liveshape.llm.serving.engine_opening import open_engine

        return open_engine
    if name == "EngineSequence":
        from liveshape.llm.serving.engine_sequence import EngineSequence

        return EngineSequence
    raise AttributeError(f"module 'liveshape.llm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
