"""The options that both of OpenAI's routes have, and the fields that they do not take."""

from __future__ import annotations

from typing import Any

from liveshape.llm.generation.logprobs import LEAST_LIKELY, Logprobs
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answers import Answers
from liveshape.serve.chat_request import sampling_options, schema_option, stop_option
from liveshape.serve.fields import Fields
from liveshape.serve.refusals import Refusal
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.strict_schema import strict

_HARMLESS = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
)


def common_options(fields: Fields, vocabulary: int, limits: RequestLimits) -> dict[str, Any]:
    """Sampling, stop strings and form of the answer; `vocabulary` is the model's."""
    fields.ignore(*_HARMLESS)
    return {**sampling_options(fields, vocabulary), **stop_option(fields, "stop", limits), **_form(fields, limits)}


def _form(fields: Fields, limits: RequestLimits) -> dict[str, Any]:
    """`response_format` as constrained decoding."""
    form = fields.inner("response_format")
    if form is None:
        return {}
    form.needed("type")
    kind = form.choice("type", ("text", "json_object", "json_schema"))
    if kind == "text":
        return {}
    schema: Any = {"type": "object"}
    if kind == "json_schema":
        described = form.inner("json_schema")
        if described is None or "schema" not in described:
            raise Refusal(400, "json_schema.schema is missing", "response_format.json_schema")
        schema = described.raw("schema")
        if described.flag("strict"):
            schema = strict(schema, "response_format")
    return schema_option(schema, "response_format", limits)


def usage_wanted(fields: Fields, stream: bool) -> bool:
    """Whether a stream ends with the number of tokens."""
    options = fields.inner("stream_options")
    if options is None:
        return False
    if not stream:
        raise Refusal(400, "stream_options are for streams: set stream to true", "stream_options")
    wanted = options.flag("include_usage")
    options.ignore("include_obfuscation")
    options.done()
    return wanted


def usage(answers: Answers, count: int, told: int | None = None) -> dict[str, Any]:
    """The tokens of a request of `count` answers to each prompt, which counts once; the first `told` are answers."""
    prompt, generated = sum(answers.prompt_tokens[:told:count]), sum(answers.generated_tokens[:told])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(answers.cached_tokens[:told:count])},
    }


def likely_token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    """A token with its log-probability; no bytes if it is a part of a character, which only several tokens make."""
    text = tokenizer.decode_behind(token)
    whole = "\N{REPLACEMENT CHARACTER}" not in text
    return {"token": text, "logprob": max(logprob, LEAST_LIKELY), "bytes": list(text.encode()) if whole else None}


def likely_tokens(tokenizer: Tokenizer, token: int, found: Logprobs) -> dict[str, Any]:
    """A token of a chat answer, with the likeliest ones in its place."""
    row = likely_token(tokenizer, token, found.chosen)
    return {**row, "top_logprobs": [likely_token(tokenizer, *each) for each in found.top]}
