"""Tiny models as files, made once per version of the exporter and kept in the cache that the test workers share."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from liveshape.export import checkpoint, config, folder, lower, model, quantize, rope
from liveshape.formats import Program, open_program, parse_vkgraph
from liveshape.metadata import is_constant
from tests.export import tiny
from tests.support.exporting import cached

MAX, CONTEXT = 72, 128


def exported(name: str, settings: dict[str, Any], options: folder.Settings) -> Path:
    """The `model.pte` of a random model with these settings of a config.json."""
    sources = tuple(Path(str(each.__file__)).read_text() for each in (model, quantize, lower, rope, folder))
    recipe = tuple(Path(str(each.__file__)).read_text() for each in (config, checkpoint, tiny))
    key = (*sources, *recipe, repr(settings), repr(options))

    def make() -> bytes:
        with tempfile.TemporaryDirectory() as out:
            folder.export_folder(tiny.checkpoint_of(settings), Path(out), options)
            return (Path(out) / folder.MODEL).read_bytes()

    return cached(f"export/{name}", key, make)


def operators(path: Path) -> list[str]:
    """The names of the one delegate's operators, in order."""
    with open_program(path) as program:
        (delegate,) = program.method("forward").delegates
        return [call.name for call in parse_vkgraph(delegate.blob).chain]


def constants(program: Program) -> dict[str, list[Any]]:
    """What the methods that only return a value return."""
    plans = [plan for plan in program.plans if is_constant(plan)]
    return {plan.name: [plan.values[index] for index in plan.outputs] for plan in plans}
