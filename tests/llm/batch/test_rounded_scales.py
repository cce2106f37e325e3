"""Scales that activations round, in batches, forks and pieces: the bytes are those that a sequence has alone."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.export.decoder.decoder import Bounds, decoder_program
from liveshape.export.file.program_file import write_program
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Layout
from liveshape.graph import Graph
from liveshape.graph.constants import RoundedConstant
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.language_model import LanguageModel
from liveshape.lower import activations
from tests.export.test_writer import AnyStorage
from tests.export.tiny import LLAMA, checkpoint_of
from tests.llm.batch.test_deterministic import WHOLE, Counts, answers, requests

CONTEXT = 48
KINDS = ["int8", pytest.param("float16", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model whose layers have 4 bits with minima, as K-quants do."""
    checkpoint = checkpoint_of(LLAMA)
    storage = AnyStorage(checkpoint, Quantization("4w"), Layout(4, 32, minima=True))
    made = tmp_path_factory.mktemp("minima") / "model.pte"
    write_program(decoder_program(checkpoint.config, storage, Bounds(8, CONTEXT), False, True, False), made)
    return made


@pytest.fixture(autouse=True)
def _rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with matrix units; where the device has no float16, rounded scales are stored as float32."""
    monkeypatch.setattr(activations, "_rounds_scales", lambda kind, limits: kind != "float32")


@pytest.fixture(scope="module")
def device() -> Device:
    limits = replace(open_device().limits, max_invocations=256, max_cooperating_threads=256)
    return open_device(limits=limits)


def has_rounded(graph: Graph) -> bool:
    return any(isinstance(tensor.constant, RoundedConstant) for tensor in graph.tensors)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_a_batch_with_shared_beginnings_and_preemption(kind: str, path: Path, device: Device) -> None:
    options: dict[str, Any] = {"device": device, "sequences": 5, "cache_bytes": 1 << 20, "activations": kind}
    runner, _ = load_runner(path, deterministic=True, **options)
    assert has_rounded(runner.executor.graph)
    given, counts = requests(11, 7), Counts()
    alone = [answers(runner, [each])[0] for each in given]
    assert answers(runner, given, pages=WHOLE, seed=2, counts=counts) == alone
    assert counts.cached >= 16, "none shared a beginning"
    assert answers(runner, given, prompt_rows=3, pages=4, seed=4, counts=counts) == alone
    assert counts.preemptions > 0, "nobody was preempted"
    runner.close()


@pytest.mark.parametrize("kind", KINDS)
def test_forks_in_random_pieces(kind: str, path: Path, device: Device) -> None:
    """Forks of one model take turns, at random places of texts that begin alike."""
    draw = random.Random(7)
    with LanguageModel.load(path, device=device, activations=kind, deterministic=True) as model:
        assert has_rounded(model.engine.executor.graph)
        common = [draw.randint(4, 90) for _ in range(9)]
        texts = [common + [draw.randint(4, 90) for _ in range(draw.randint(3, 25))] for _ in range(4)]
        alone = []
        for text in texts:
            model.reset()
            model.prefill(text)
            alone.append(model.logits().tobytes())
        model.reset()
        model.prefill(common)
        forks = [(model.fork(), text, wanted) for text, wanted in zip(texts, alone, strict=True)]
        places = [len(common)] * len(forks)
        while left := [place for place, (_, text, _) in enumerate(forks) if places[place] < len(text)]:
            turn = draw.choice(left)
            fork, text, wanted = forks[turn]
            end = min(len(text), places[turn] + draw.randint(1, 9))
            fork.prefill(text[places[turn] : end])
            places[turn] = end
            if end == len(text):
                assert fork.logits().tobytes() == wanted, turn


def test_rounding_shows(path: Path, device: Device) -> None:
    """Else the tests above would compare what no scale was rounded in."""
    found = set()
    for kind in ("float32", "float16"):
        with LanguageModel.load(path, device=device, activations=kind, deterministic=True) as model:
            model.prefill([5, 6, 7])
            found.add(model.logits().tobytes())
    assert len(found) == 2
