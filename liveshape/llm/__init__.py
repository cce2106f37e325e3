"""Language models: text in, text out, from one graph with its cache on the GPU.

    from liveshape.llm import load, stream_generate

    model, tokenizer = load("SmolLM2-135M-Instruct")          # model.pte with tokenizer.json beside it
    for response in stream_generate(model, tokenizer, "Why is the sky blue?"):
        print(response.text, end="", flush=True)

Text needs the extra `llm`: `pip install 'liveshape[llm]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from liveshape.llm.chat import Conversation
from liveshape.llm.generate import ContextError, generate, load, stream_generate
from liveshape.llm.logprobs import Logprobs
from liveshape.llm.options import GenerationOptions
from liveshape.llm.responses import GenerationResponse
from liveshape.llm.sampling import Sampling
from liveshape.llm.stats import Stats
from liveshape.llm.tokenizer import StreamDecoder, Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.model import LanguageModel

__all__ = [
    "ContextError",
    "Conversation",
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
    "stream_generate",
]


def __getattr__(name: str) -> Any:
    # The tokenizer is of use without the runtime, so the model comes along only when it is asked for.
    if name == "LanguageModel":
        from liveshape.llm.model import LanguageModel

        return LanguageModel
    raise AttributeError(f"module 'liveshape.llm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
