"""`/v1/embeddings`: texts to vectors of unit length, as OpenAI's route has them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.llm.arguments import text_of
from liveshape.llm.embedding.text_encoder import TextEncoder
from liveshape.llm.embedding.vector_pooling import Vector
from liveshape.llm.generation.prompts import is_batch
from liveshape.serve.fields import Fields
from liveshape.serve.refusals import Refusal, refused
from liveshape.serve.request_limits import RequestLimits


@dataclass(frozen=True)
class EmbeddingRequest:
    """Texts, encoded, and the form of their vectors."""

    texts: Sequence[list[int]]
    base64: bool
    model: str

    @classmethod
    def read(cls, fields: Fields, model: str, encoder: TextEncoder, limits: RequestLimits) -> EmbeddingRequest:
        """Read and check a request."""
        form = fields.choice("encoding_format", ("float", "base64"))
        wanted = fields.whole("dimensions", 1)
        if wanted not in (None, encoder.size):
            raise Refusal(400, f"dimensions is {wanted}, the vectors of {model} have {encoder.size}", "dimensions")
        texts = _texts(fields, encoder, limits)
        fields.ignore("user")
        fields.done()
        return cls(texts, form == "base64", model)

    @property
    def tokens(self) -> int:
        """Of all texts."""
        return sum(map(len, self.texts))

    def answer(self, vectors: Sequence[Vector]) -> dict[str, Any]:
        """The JSON of the vectors."""
        rows = [
            {"object": "embedding", "index": index, "embedding": _base64(vector) if self.base64 else vector.tolist()}
            for index, vector in enumerate(vectors)
        ]
        tokens = {"prompt_tokens": self.tokens, "total_tokens": self.tokens}
        return {"object": "list", "data": rows, "model": self.model, "usage": tokens}


def _texts(fields: Fields, encoder: TextEncoder, limits: RequestLimits) -> list[list[int]]:
    given = fields.needed("input")
    several = given if is_batch(given) else [given]
    if len(several) > limits.embedded_texts:
        raise Refusal(400, f"input has {len(several):,} texts, at most {limits.embedded_texts:,} are taken", "input")
    if any(isinstance(each, list) and each for each in several):
        raise Refusal(
            400,
            "input has token ids, which may be those of another tokenizer and give wrong vectors: send texts (in "
            "LangChain OpenAIEmbeddings(check_embedding_ctx_length=False))",
            "input",
        )
    with refused("input"):
        return [encoder.encode(text_of(each or "", "input")) for each in several]


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
