"""What the JavaScript of a page calls: programs and language models by number, everything small as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from liveshape_js import gpu, turn, upload
from pyodide.ffi import create_proxy, run_sync, to_js

from liveshape import load
from liveshape.device.page_device import can_wait
from liveshape.device.page_opening import offer_gpu
from liveshape.errors import InputError

_device = offer_gpu(gpu, upload)  # JavaScript has opened it while Python started

_numbers = count(1)
_open: dict[int, Any] = {}


def _kept(thing: Any) -> int:
    number = next(_numbers)
    _open[number] = thing
    return number


def _opened(number: int) -> Any:
    if number not in _open:
        raise InputError("the model was closed, and its memory is free for others; load it again")
    return _open[number]


class Aborted(Exception):
    """The page wants the model no more."""


class _Watched:
    """Tells a page how loading goes, and stops where the page has aborted it."""

    def __init__(self, tell: Callable[[str, int, int], bool]) -> None:
        self._tell, self._waited = tell, time.perf_counter()

    def uploaded(self, done: int, total: int) -> None:
        if can_wait() and time.perf_counter() - self._waited > _PERIOD:
            run_sync(turn())  # the page's messages come between two pieces of work
            self._waited = time.perf_counter()
        if self._tell("upload", done, total):
            raise Aborted

    async def compiled(self) -> None:
        """Wait for all kernels, so that no call waits for one."""
        tell = create_proxy(lambda done, total: self._tell("compile", done, total))
        try:
            await _device.ready(tell)
        finally:
            tell.destroy()
        if self._tell("", 0, 0):  # only asks
            raise Aborted


_PERIOD = 0.05  # seconds


def about_device() -> str:
    """The adapter and what it allows."""
    limits = _device.limits
    about = {"name": _device.name, "software": _device.adapter.software, "half": limits.half}
    return json.dumps({**about, "matrices": bool(limits.matrices)})


# Programs


async def load_program(path: str, method: str, tell: Any) -> str:
    """Load a method of a `.pte`; returns its number, and its inputs and outputs."""
    watched = _Watched(tell)
    model = load(path, method=method, progress=watched.uploaded)
    try:
        await watched.compiled()
    except BaseException:
        model.close()
        raise
    return json.dumps({"id": _kept(model), "inputs": _infos(model.inputs), "outputs": _infos(model.outputs)})


def _infos(tensors: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": info.name,
            "dtype": info.dtype,
            "bounds": list(info.bounds),
            "dims": [{"status": dim.status, "min": dim.min, "max": dim.max} for dim in info.dims],
        }
        for info in tensors
    ]


async def run_program(number: int, inputs: Any) -> Any:
    """Run once. `inputs` are rows of dtype, shape as JSON, and bytes; the outputs, too."""
    model = _opened(number)
    arrays = [_array(dtype, json.loads(shape), data) for dtype, shape, data in inputs]
    found = await model.call_async(*arrays)
    outputs = found if isinstance(found, tuple) else (found,)
    return to_js([_row(output) for output in outputs])


def _array(dtype: str, shape: list[int], data: Any) -> Any:
    if dtype == "number":
        return data
    return np.frombuffer(data.to_bytes(), dtype).reshape(shape)


def _row(output: Any) -> list[Any]:
    if not isinstance(output, np.ndarray):
        return ["number", "[]", output]
    return [output.dtype.name, json.dumps(list(output.shape)), memoryview(output).cast("B") if output.size else b""]


# Language models


async def load_language_model(folder: str, options: str, tell: Any) -> str:
    """Load a model and its tokenizer from a folder: a program, a GGUF file, or safetensors with their config."""
    from liveshape_sources import converted

    from liveshape.llm import LanguageModel
    from liveshape.llm.text.tokenizer import Tokenizer

    watched, chosen = _Watched(tell), json.loads(options)
    converted(folder, chosen.pop("quant", None))
    tokenizer = Tokenizer.load(folder)
    model = LanguageModel.load(folder, progress=watched.uploaded, **chosen)
    try:
        await watched.compiled()
    except BaseException:
        model.close()
        raise
    facts = {
        "maxContext": model.max_context,
        "vocabSize": model.vocab_size,
        "chat": tokenizer.chat_template is not None,
        "activations": model.activations,
    }
    return json.dumps({"id": _kept((model, tokenizer)), **facts})


def begin_stream(number: int, prompt: str, options: str) -> int:
    """Begin to generate; a prompt is a text, messages or ids, as JSON."""
    from liveshape.llm import stream_generate

    model, tokenizer = _opened(number)
    return _kept(_Stream(number, stream_generate(model, tokenizer, json.loads(prompt), **json.loads(options))))


class _Stream(NamedTuple):
    model: int  # its number
    responses: Any


def next_response(number: int) -> str | None:
    """The next response of a stream, None at its end."""
    return _told(number, next(_responses(number), None))


async def next_response_async(number: int) -> str | None:
    """`next_response` where Python cannot wait."""
    return _told(number, await anext(_responses(number), None))


def _responses(number: int) -> Any:
    if number not in _open:
        raise InputError("the model of this stream was closed: load it again")
    return _open[number].responses


def _told(number: int, response: Any) -> str | None:
    if response is None:
        _open.pop(number, None)
        return None
    return json.dumps(
        {
            "text": response.text,
            "token": response.token,
            "finishReason": response.finish_reason,
            "promptTokens": response.prompt_tokens,
            "tokens": response.generation_tokens,
            "tokensPerSecond": response.generation_tps,
        }
    )


def end_stream(number: int) -> None:
    """Stop a stream."""
    stream = _open.pop(number, None)
    if stream is not None:
        stream.responses.close()


def encode(number: int, text: str) -> str:
    """The ids of a text."""
    return json.dumps(_opened(number)[1].encode(text))


def close(number: int) -> None:
    """Free what was loaded, and end streams that were left."""
    for other in [other for other, found in _open.items() if isinstance(found, _Stream) and found.model == number]:
        end_stream(other)
    thing = _open.pop(number, None)
    if thing is not None:
        (thing[0] if isinstance(thing, tuple) else thing).close()


def memory() -> int:
    """Bytes of the device's memory in use."""
    return int(_device.counters.live_bytes)
