"""The MODEL argument of commands: a `.pte`, its folder, or a checkpoint to convert, with progress bars; and loading
the language model and its tokenizer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liveshape.export.folder import Settings
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.runnable import Conversion, runnable
from liveshape.export.sources.hub import is_hub_name
from liveshape.export.sources.opening import located, runs_as_it_is
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.program.token_graph import CONTEXT, constants_of, parameters_of
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.llm.text.unconverted import tokenizer_of
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import load_program
from liveshape.shipped import shipped, shipped_model
from liveshape.tools.console import kernel_bar, upload_bar
from liveshape.tools.wrapping import wrapped

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel

NGRAM = "ngram"
AS_USUAL = Conversion()
Check = Callable[[Tokenizer, int | None, int | None], None]  # context length of the run, and the trained one


@contextmanager
def runnable_model(
    source: str, conversion: Conversion, check: Callable[[Checkpoint], object] | None = None
) -> Iterator[Path]:
    """The path to load a model from, converted first if needed; a temporary conversion is deleted at the end.

    `check` may refuse a checkpoint before it is converted.

    Example: `with runnable_model("model.gguf", Conversion()) as folder: load(folder)`.
    """
    with upload_bar("converting") as progress, runnable(source, conversion, progress, _tell, check) as path:
        yield path


def check_source(source: str) -> None:
    """Raise for a source that is not there or is no model; one of the Hub is not asked for.

    Example: `check_source("model.gguf")`.
    """
    if (shipped(source) or Path(source)).exists() or not is_hub_name(source):
        runs_as_it_is(located(source))


def contexts_of(path: Path) -> tuple[int | None, int | None]:
    """Context length that a program was exported with, and trained context length, if known; reads no weights.

    Example: `own, trained = contexts_of(Path("model-folder"))`.
    """
    with load_program(CompileTarget(), str(program_file(path))) as program:
        constants = constants_of(program)
    own, parameters = constants.get(CONTEXT), parameters_of(constants)
    return own if isinstance(own, int) else None, None if parameters is None else parameters.reach


def open_model(
    source: str | None,
    device: str | None,
    half_cache: bool = False,
    activations: str = AUTO,
    conversion: Conversion = AS_USUAL,
    check: Check | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> tuple[LanguageModel, Tokenizer]:
    """Load a language model and its tokenizer, with progress bars; None is the shipped model.

    With the settings that it will be sampled by, kernels that the driver would compile in the first call are compiled.

    `check` may refuse the request by the tokenizer and context lengths, before weights are converted or uploaded.

    Example: `model, tokenizer = open_model(None, "llvmpipe")`.
    """
    from liveshape.llm.language_model import LanguageModel

    def early(checkpoint: Checkpoint) -> None:
        tokenizer, trained = tokenizer_of(checkpoint), checkpoint.config.context
        if check is not None:
            check(tokenizer, conversion.max_context or Settings().bounds(trained)[1], trained)

    given = str(shipped_model()) if source is None else source
    with runnable_model(given, conversion, early) as path, upload_bar() as progress:
        tokenizer = Tokenizer.load(path)
        if check is not None:
            own, trained = contexts_of(path)
            check(tokenizer, conversion.max_context or own, trained)
        model = LanguageModel.load(
            path,
            device=device,
            progress=progress,
            half_cache=half_cache,
            activations=activations,
            max_context=conversion.max_context,
        )
    if sampling is not None:
        with kernel_bar() as kernels:
            model.warm_up([tokenizer.generation.sampling(**sampling)], kernels)
    if model.trained_context is not None and model.max_context > model.trained_context:
        print(
            f"note: the model was trained for {model.trained_context:,} tokens; text beyond that will be poor",
            file=sys.stderr,
        )
    return model, tokenizer


def device_text(model: LanguageModel) -> str:
    """The device of a model and the kind of its activations, as commands print them.

    Example: `print(device_text(model), file=sys.stderr)`.
    """
    return f"{model.device.name}, {model.activations} activations"


def open_lookahead(
    wanted: str | None,
    device: str | None,
    half_cache: bool = False,
    activations: str = AUTO,
    conversion: Conversion = AS_USUAL,
) -> Any:
    """The draft source of `--lookahead` for speculative decoding: "ngram", or a draft model with its tokenizer.

    A draft model that is converted gets the context length of the target model and the default quantization.

    Example: `open_lookahead("SmolLM2-135M-Instruct", "nvidia")`.
    """
    if wanted is None or wanted == NGRAM:
        return wanted
    asked = AS_USUAL if runs_as_it_is(located(wanted)) else replace(conversion, quant=None)
    return open_model(wanted, device, half_cache, activations, asked)


def _tell(text: str) -> None:
    print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)
