"""What goes wrong in Node: each fault has a clear error, and the next call works; what is not there is done without."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest

from liveshape import load
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped, shipped_model
from tests.support.browser import node
from tests.web.test_node import IDS, WEB, environment

pytestmark = pytest.mark.slow

# The least that WebGPU promises.
LEAST = {
    "maxStorageBufferBindingSize": 1 << 27,
    "maxBufferSize": 1 << 28,
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeWorkgroupStorageSize": 1 << 14,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupsPerDimension": 65535,
}


def faults(task: str, *given: str) -> dict[str, Any]:
    """What a task of web/test/faults.mjs says, as one dict."""
    command = [node(), str(WEB / "test" / "faults.mjs"), task, str(shipped("demo")), str(shipped_model()), *given]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=1500, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert not any("failed" in line for line in lines), lines[-1]
    return {key: value for line in lines for key, value in line.items()} | {"lines": lines}


def wanted(*sizes: int) -> list[Any]:
    with load(shipped("demo")) as model:
        return [model(np.sin(np.arange(size * 64)).astype(np.float32).reshape(1, size, 64)) for size in sizes]


def test_a_lost_device() -> None:
    found = faults("lost")
    for name in ("running", "after"):
        assert found[name].startswith("DeviceError: the device was lost: ")
        assert found[name].endswith("; load the model again")
    assert found["closing"] is None, "its memory is free already"
    assert (found["same"], found["devices"], found["memory"]) == (True, 2, 0)


def test_memory_that_is_denied() -> None:
    found = faults("denied")
    for name in ("program", "language"):
        assert found[name].startswith("DeviceError: ")
        assert "could not allocate " in found[name]
        assert "load a smaller model" in found[name]
    assert (found["lines"][0]["memory"], found["size"], found["memory"]) == (0, 7 * 64, 0)


@pytest.mark.parametrize("features", [[], ["subgroups"]])
def test_small_limits_and_features_withheld(features: list[str]) -> None:
    found = faults("limits", json.dumps({"features": features, "limits": LEAST}))
    assert set(found["granted"]) & {"shader-f16", "subgroups"} <= set(features)
    assert not found["device"]["half"]
    assert "open already" in found["other"]
    for data, array in zip(found["outputs"], wanted(128, 7), strict=True):
        np.testing.assert_allclose(np.float32(data).reshape(array.shape), array, 1e-5, 1e-5)
    with LanguageModel.load(shipped_model()) as model:
        assert found["tokens"] == list(model.stream(IDS, Sampling(), max_tokens=30))


def test_several_models_and_calls_at_once() -> None:
    found = faults("several")
    assert found["together"]
    assert found["streams"][0].startswith(
        "InputError: the model was used otherwise since the last token of this stream"
    )
    assert len(found["streams"][1]) == 10
    assert found["after"]
    assert "the model was closed" in found["closed"]
    assert "the model of this stream was closed" in found["stream"]
    assert (found["goes"], found["memory"]) == (True, 0)


def test_loads_and_streams_that_are_aborted() -> None:
    found = faults("aborted")
    loads = [line for line in found["lines"] if "stage" in line]
    assert len(loads) == 3
    assert all((line["error"].split(":")[0], line["memory"]) == ("AbortError", 0) for line in loads)
    assert found["before"].startswith("AbortError")
    assert found["stream"].startswith("AbortError")
    assert found["seen"] in (3, 4), "within a token"
    assert found["tokens"] == 5


def test_every_kernel_is_compiled_at_load() -> None:
    found = faults("pipelines")
    assert found["ahead"] > 40
    assert (found["later"], found["late"]) == (0, 0)
    ends: list[list[dict[str, Any]]] = [[], []]  # rows of the program, then of the language model
    for row, before in zip(found["stages"], [None, *found["stages"]], strict=False):
        begins = before is not None and before["stage"] == "compile" and row["stage"] == "upload"
        ends[1 if begins or ends[1] else 0].append(row)
    for rows in ends:
        assert [row["stage"] for row in rows] == sorted((row["stage"] for row in rows), reverse=True)
        for stage in ("upload", "compile"):
            done = [row["done"] for row in rows if row["stage"] == stage]
            assert done == sorted(done)
            assert done[-1] == next(row["total"] for row in reversed(rows) if row["stage"] == stage)


def test_without_jspi_programs_and_language_models_run() -> None:
    found = faults("withoutSuspending")
    for data, array in zip(found["outputs"], wanted(128, 7, 1), strict=True):
        np.testing.assert_allclose(np.float32(data).reshape(array.shape), array, 1e-5, 1e-5)
    assert found["twice"] == [7 * 64, 5 * 64]
    with LanguageModel.load(shipped_model()) as model:
        greedy = list(model.stream(IDS, Sampling(), max_tokens=40))
        model.reset()
        sampled = list(model.stream(IDS, Sampling(temperature=0.8, seed=3), max_tokens=12))
    assert [found[name] for name in ("tokens", "after", "long")] == [greedy[:20], greedy[:8], greedy]
    assert found["sampled"] == sampled
    assert found["memory"] == 0
