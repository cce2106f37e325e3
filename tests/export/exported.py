"""Tiny models as files: by the writer, in no time, and by torch, kept in the cache that the test workers share."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from liveshape.export import folder
from liveshape.export.decoder import rope
from liveshape.export.model import checkpoint, config, families
from liveshape.export.sources import huggingface_config
from liveshape.formats import PteFile, open_program, parse_vkgraph
from liveshape.metadata import is_constant
from tests.export import tiny
from tests.support.exporting import cached, exporter_sources

MAX, CONTEXT = 72, 128


def exported(name: str, settings: dict[str, Any], options: folder.Settings) -> Path:
    """The `model.pte` of a random model with these settings of a config.json."""
    return written(f"written/{name}", tiny.checkpoint_of(settings), options)


def written(name: str, model: checkpoint.Checkpoint, options: folder.Settings) -> Path:
    """What the writer makes of a model, made anew every time and kept under the checksum of its bytes."""
    with tempfile.TemporaryDirectory() as out:
        folder.export_folder(model, Path(out), options)
        content = (Path(out) / folder.MODEL).read_bytes()
    return cached(name, hashlib.sha256(content).hexdigest(), lambda: content)


def exported_by_torch(name: str, settings: dict[str, Any], options: folder.Settings) -> Path:
    """The same, by way of torch."""
    from tests.export import torch_decoder, torch_road, torch_weights

    sources = (torch_decoder, torch_road, torch_weights, rope, config, huggingface_config, families)
    sources += (checkpoint, tiny)
    key = (
        *(Path(str(each.__file__)).read_text() for each in sources),
        *exporter_sources(),
        repr(settings),
        repr(options),
    )

    def make() -> bytes:
        model = tiny.checkpoint_of(settings)
        with tempfile.TemporaryDirectory() as out:
            path = Path(out) / folder.MODEL
            decoder = torch_road.build_decoder(model, options)
            torch_road.lower_decoder(decoder, path, options.bounds(model.config.context)[0], options.half)
            return path.read_bytes()

    return cached(f"export/{name}", key, make)


def operators(path: Path) -> list[str]:
    """The names of the one delegate's operators, in order."""
    with open_program(path) as program:
        (delegate,) = program.method("forward").delegates
        return [call.name for call in parse_vkgraph(delegate.blob).chain]


def constants(program: PteFile) -> dict[str, list[Any]]:
    """What the methods that only return a value return."""
    plans = [plan for plan in program.plans if is_constant(plan)]
    return {plan.name: [plan.values[index] for index in plan.outputs] for plan in plans}
