"""Options of a fleet from texts and values, and the adapter of a replica."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape.device.protocol import Adapter
from liveshape.errors import InputError
from liveshape.serve.fleet_options import FleetOptions
from liveshape.serve.replica_adapter import adapter_of


def test_texts_and_values_mean_the_same() -> None:
    texts = {"model": "m.gguf", "sequences": "16", "cache_bytes": "1024", "half_cache": "True", "gpus": "0.5"}
    values = {"model": "m.gguf", "sequences": 16, "cache_bytes": 1024, "half_cache": True, "gpus": 0.5, "device": None}
    assert FleetOptions.read(texts) == FleetOptions.read(values)
    assert FleetOptions.read({"half_cache": "0"}) == FleetOptions()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"modell": "x"}, "no option of a fleet; there are activations"),
        ({"sequences": "many"}, "sequences is a whole number, 'many' was given"),
        ({"half_cache": "maybe"}, "true or false"),
        ({"gpus": "all"}, "gpus is a number"),
        ({"sequences": 0}, "at least one"),
        ({"activations": "int4"}, "activations 'int4': float32, float16, int8 or auto is possible"),
        ({"min_replicas": 3, "max_replicas": 2}, "no less than min_replicas"),
    ],
)
def test_a_wrong_option_is_told(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        FleetOptions.read(given)


def test_the_environment_has_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVESHAPE_SERVE_MODEL", "from-outside")
    monkeypatch.setenv("LIVESHAPE_SERVE_SEQUENCES", "3")
    found = FleetOptions.of_environment({"sequences": 5})
    assert (found.model, found.sequences) == ("from-outside", 5)


def adapters(*software: bool) -> list[Adapter]:
    return [Adapter(index, f"adapter {index}", "", "", "", each, True, 1, 1) for index, each in enumerate(software)]


def test_replicas_of_one_machine_have_different_adapters() -> None:
    found = adapters(False, True, False)
    assert adapter_of([], found) is None
    assert [adapter_of([gpu], found) for gpu in ("0", 1)] == [0, 2]
    for assigned in (["2"], ["0", "1"], ["GPU-5b1f"]):
        with pytest.raises(InputError, match="adapter 0, adapter 2: give each replica one GPU"):
            adapter_of(assigned, found)
    with pytest.raises(InputError, match="are none"):
        adapter_of(["0"], adapters(True))
