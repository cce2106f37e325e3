"""What the JavaScript of a page calls: programs and language models by number, everything small as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
from liveshape_js import gpu, upload
from pyodide.ffi import to_js

from liveshape import load
from liveshape.device.page_opening import offer_gpu

_device = offer_gpu(gpu, upload)  # JavaScript has opened it while Python started

_numbers = count(1)
_open: dict[int, Any] = {}


def _kept(thing: Any) -> int:
    number = next(_numbers)
    _open[number] = thing
    return number


def _progress(tell: Callable[[int, int], Any] | None) -> Callable[[int, int], None] | None:
    if tell is None:
        return None
    return lambda done, total: tell(done, total)


def about_device() -> str:
    """The adapter and what it allows."""
    return json.dumps({"name": _device.name, "software": _device.adapter.software, "half": _device.limits.half})


# Programs


def load_program(path: str, method: str, tell: Any) -> str:
    """Load a method of a `.pte`; returns its number, and its inputs and outputs."""
    model = load(path, method=method, progress=_progress(tell))
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


def run_program(number: int, inputs: Any) -> Any:
    """Run once. `inputs` are rows of dtype, shape as JSON, and bytes; the outputs, too."""
    model = _open[number]
    arrays = [_array(dtype, json.loads(shape), data) for dtype, shape, data in inputs]
    found = model(*arrays)
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


def load_language_model(folder: str, options: str, tell: Any) -> str:
    """Load a model and its tokenizer from a folder."""
    from liveshape.llm import LanguageModel
    from liveshape.llm.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    model = LanguageModel.load(folder, progress=_progress(tell), **json.loads(options))
    facts = {
        "maxContext": model.max_context,
        "vocabSize": model.vocab_size,
        "chat": tokenizer.chat_template is not None,
    }
    return json.dumps({"id": _kept((model, tokenizer)), **facts})


def begin_stream(number: int, prompt: str, options: str) -> int:
    """Begin to generate; a prompt is a text, messages or ids, as JSON."""
    from liveshape.llm import stream_generate

    model, tokenizer = _open[number]
    return _kept(stream_generate(model, tokenizer, json.loads(prompt), **json.loads(options)))


def next_response(number: int) -> str | None:
    """The next response of a stream, None at its end."""
    stream: Iterator[Any] = _open[number]
    response = next(stream, None)
    if response is None:
        del _open[number]
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
        stream.close()


def encode(number: int, text: str) -> str:
    """The ids of a text."""
    return json.dumps(_open[number][1].encode(text))


def close(number: int) -> None:
    """Free what was loaded."""
    thing = _open.pop(number, None)
    if thing is not None:
        (thing[0] if isinstance(thing, tuple) else thing).close()


def memory() -> int:
    """Bytes of the device's memory in use."""
    return int(_device.counters.live_bytes)
