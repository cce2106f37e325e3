"""Workloads of `bench` and `profile`: a language model from a folder or with random weights, or a program's method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import InputError, UnsupportedError
from liveshape.export.runnable import Conversion
from liveshape.export.sources.hub import is_hub_name
from liveshape.export.sources.opening import runs_as_it_is
from liveshape.graph.activation_kinds import AUTO, FLOAT16
from liveshape.graph.limits import MatrixUse
from liveshape.llm.engine.engine import Engine
from liveshape.llm.engine.origin import Origin
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.program.half_cache import halve_caches
from liveshape.llm.program.prefill_chunk import prefill_chunk
from liveshape.llm.program.token_graph import token_graph
from liveshape.llm.sampling_settings import Sampling
from liveshape.lower.activations import with_activations
from liveshape.metadata import shape_text
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import load_program
from liveshape.progress import Progress
from liveshape.run.half_scales import fit_halves
from liveshape.shipped import shipped, shipped_model
from liveshape.tools.measuring.random_llamas import SHAPES, llama_graph, shape_of
from liveshape.tools.model_argument import contexts_of, runnable_model


@dataclass(frozen=True)
class Work:
    """A workload: prefill of `prompt` tokens or decode of `tokens`, with `depth` tokens in the KV cache; or a call."""

    prompt: int = 0
    tokens: int = 0
    depth: int = 0
    call: str = ""

    @property
    def name(self) -> str:
        """Test name in llama-bench's notation.

        >>> Work(prompt=512, depth=4096).name, Work(tokens=128).name
        ('pp512 @ d4096', 'tg128')
        """
        text = self.call or (f"pp{self.prompt}" if self.prompt else f"tg{self.tokens}")
        return f"{text} @ d{self.depth}" if self.depth else text

    @property
    def context(self) -> int:
        """Context length needed; decode begins with one token of its own."""
        return self.depth + (self.prompt or self.tokens)


def works(prompts: Sequence[int], tokens: Sequence[int], depths: Sequence[int]) -> list[Work]:
    """Prefill and decode workloads of each length at each depth; a length of 0 is skipped.

    >>> [work.name for work in works([512], [128, 0], [0, 64])]
    ['pp512', 'tg128', 'pp512 @ d64', 'tg128 @ d64']
    """
    tests = [
        test
        for depth in depths
        for test in (*(Work(prompt=each, depth=depth) for each in prompts), *(Work(0, each, depth) for each in tokens))
        if test.prompt or test.tokens
    ]
    if not tests:
        raise InputError("-p 0 and -n 0 leave nothing to measure")
    return tests


def is_program(model: str) -> bool:
    """Whether a model is benchmarked per call: a `.pte` program, not a language model's folder or checkpoint.

    >>> is_program("demo"), is_program("story")
    (True, False)
    """
    path = shipped(model) or Path(model)
    return path.is_file() and runs_as_it_is(path)


def check_calls(model: str, conversion: Conversion | None) -> None:
    """Refuse language model options for a program that is benchmarked per call.

    Example: `check_calls("model.pte", Conversion())`.
    """
    asked = conversion or Conversion()
    for flag, value in (("--quant", asked.quant), ("--max-context", asked.max_context)):
        if value is not None:
            raise InputError(
                f"{flag} {value} is for language models; {model} is a file, which is timed by calls: name its folder"
            )


def call_name(method: str, inputs: Sequence[Any]) -> str:
    """Test name of a call: the method and its input shapes.

    >>> call_name("forward", [np.zeros((1, 7)), 3])
    'forward 1x7,scalar'
    """
    return " ".join([method, ",".join(shape_text(np.shape(each)) for each in inputs)]).strip()


@dataclass(frozen=True)
class Subject:
    """The language model to measure: a folder, or random weights of a named size; by default the shipped model."""

    path: str | None = None
    shape: str | None = None
    half_cache: bool = False
    activations: str = "float32"
    max_context: int | None = None  # requested context length; None is what the workloads need
    title: str | None = None

    def __post_init__(self) -> None:
        if self.path is not None and self.shape is not None:
            raise InputError(f"MODEL {self.path} and --shape {self.shape}: give one of the two")
        if self.shape is not None and self.shape not in SHAPES:
            raise InputError(f"--shape {self.shape}: there are {', '.join(SHAPES)}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.title or self.shape or self.folder.name

    @property
    def folder(self) -> Path:
        """The model's folder."""
        return shipped_model() if self.path is None else Path(self.path)

    @contextmanager
    def converted(self, conversion: Conversion, rows: Sequence[Work]) -> Iterator[Subject]:
        """This subject with its checkpoint converted to a program where needed, under the same name.

        Workloads beyond its context are refused before the conversion.

        Example: `with Subject("model.gguf").converted(Conversion(), rows) as subject: subject.open(rows, device)`.
        """
        if self.path is None:
            yield self
            return
        self._check_asked(rows)
        if not self.folder.exists() and not is_hub_name(self.path):
            raise InputError(f"{self.path}: there is no such folder; --shape takes random weights of a known size")
        with runnable_model(
            self.path, conversion, lambda model: self._check_trained(rows, model.config.context)
        ) as path:
            yield replace(self, path=str(path), title=self.folder.name)

    def context(self, rows: Sequence[Work]) -> int | None:
        """`max_context` to load the model with for these workloads; None where the exported one is enough.

        As requested, or as long as they need, up to the trained context length. Reads no weights.

        Example: `Subject("model-folder").context([Work(prompt=512, depth=4096)])`.
        """
        longest = _longest(rows)
        self._check_asked(rows)
        if self.max_context is not None or self.shape is not None:
            return self.max_context
        own, trained = contexts_of(self.folder)
        if own is None or longest.context <= own:
            return None
        if trained is None:
            self._check(longest, own, f"{self.name} has {own:,}, and its file does not say how to make that more")
        self._check_trained(rows, trained)
        return longest.context

    def device(self, choice: str | int | None = None) -> Device:
        """The device that this model is loaded on, opened: the one that was chosen, or the one that a user gets.

        Example: `Subject(shape="1b", activations="float16").device("nvidia")`.
        """
        if self.shape is not None:
            rounds = self.activations in (FLOAT16, AUTO)
            return open_device(choice, matrices=lambda: MatrixUse.PRODUCTS if rounds else MatrixUse.NOTHING)
        target = CompileTarget(choice, activations=self.activations)
        with load_program(target, program_file(self.folder)):
            return target.device

    def open(self, rows: Sequence[Work], device: Device, progress: Progress | None = None) -> LanguageModel:
        """Load the model on a device, with a context that fits these workloads.

        Example: `Subject(shape="tiny").open([Work(tokens=128)], open_device())`.
        """
        context, longest = self.context(rows), _longest(rows)
        if self.shape is None:
            model = LanguageModel.load(
                self.folder,
                device=device,
                progress=progress,
                half_cache=self.half_cache,
                activations=self.activations,
                max_context=context,
            )
            self._check(longest, model.max_context, f"{self.name} has {model.max_context:,}")
            return model
        target = CompileTarget(device, activations=self.activations)
        shape = shape_of(self.shape, context or longest.context)
        chunk = min(max(shape.max_seq_len, prefill_chunk(target.limits)), shape.max_context)
        made = llama_graph(replace(shape, max_seq_len=chunk), target.limits)
        graph = with_activations(made, target.activations, target.limits, fit_halves)
        whole = token_graph(halve_caches(graph, limits=target.limits) if self.half_cache else graph, {})
        engine = Engine(whole, device, progress, target.limits)
        return LanguageModel(engine, Origin(self.shape, activations=target.activations))

    def _check_asked(self, rows: Sequence[Work]) -> None:
        if self.max_context is not None:
            self._check(_longest(rows), self.max_context, f"--max-context {self.max_context} was given")

    def _check_trained(self, rows: Sequence[Work], trained: int | None) -> None:
        if self.max_context is None and trained is not None:
            longest = _longest(rows)
            more = f"; --max-context {longest.context} goes beyond"
            self._check(longest, trained, f"{self.name} was trained for {trained:,}", more)

    def _check(self, work: Work, context: int, reason: str, more: str = "") -> None:
        if work.context > context:
            raise InputError(
                f"{work.name} takes {work.context:,} tokens of context, {reason}: give a smaller -p, -n or -d{more}"
            )


def _longest(rows: Sequence[Work]) -> Work:
    return max(rows, key=lambda work: work.context)


def random_tokens(model: LanguageModel, count: int) -> list[int]:
    """Random token ids, the same at every call."""
    found: list[int] = np.random.default_rng(0).integers(0, model.vocab_size, count).tolist()
    return found


def go_to_depth(model: LanguageModel, depth: int) -> None:
    """Fill the KV cache with `depth` tokens, and wait until the device is idle."""
    try:
        model.truncate(min(depth, model.position))
    except UnsupportedError:
        model.reset()  # recurrent state cannot be truncated to a depth
    model.prefill(random_tokens(model, depth)[model.position :])
    model.device.flush()


def do(model: LanguageModel, work: Work) -> None:
    """Run a workload at its depth, and wait for the device."""
    if work.prompt:
        model.prefill(random_tokens(model, work.prompt))
        model.device.flush()
    else:
        for _ in model.stream(random_tokens(model, 1), Sampling(), max_tokens=work.tokens):
            pass
