"""`liveshape inspect`: what is in a program, what it needs, and what cannot run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import liveshape
from liveshape.device import backends
from liveshape.graph import Limits
from liveshape.ops import split_factors
from liveshape.shipped import shipped_model
from liveshape.tools.commands import inspect
from liveshape.tools.program_report import unread_inputs
from tests.cli.calls import Capture, call
from tests.plan.test_float_products import SPLITTING
from tests.runtime.files import LENGTH, portable, several
from tests.support.graphs import In, OpCase, Out, build
from tests.support.programs import programs

RECORDED = Path(__file__).parents[1] / "recorded" / "exports"


def test_inspect_shows_what_is_there(capsys: Capture) -> None:
    code, out, _ = call(capsys, "inspect", several())
    assert code == 0
    for part in (
        "get_max_seq_len",
        "input 0",
        "1x43x64",
        "dynamic: dimension 1 up to 43\n",
        "et_vk.rms_norm.default",
        "256 B",
        "activations",
    ):
        assert part in out


def test_inspect_as_json(capsys: Capture) -> None:
    code, out, _ = call(capsys, "inspect", several(), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["constant_methods"]["get_eos_ids"] == [1, 2]
    forward, sums = document["methods"]
    assert forward["operators"] == {"et_vk.rms_norm.default": 1, "aten.add.Tensor": 1}
    (taken,) = forward["inputs"]
    dims = taken.pop("dims")
    assert taken == {"name": "input 0", "dtype": "float32", "bounds": [1, LENGTH, 64], "dynamic": True}
    # Only dimension 1 can be planned below its bound, and the file says that the tensor is dynamic.
    assert [(dim["status"], dim["min"], dim["max"]) for dim in dims] == [
        ("static", 1, 1),
        ("dynamic", 0, LENGTH),
        ("static", 64, 64),
    ]
    assert not forward["signature"]
    assert forward["dynamic"] == {"input 0": [1], "output 0": [1]}
    assert forward["constants"]["nbytes"] == 256
    assert (sums["name"], sums["problems"]) == ("sums", [])


def test_an_input_that_nothing_reads_is_named() -> None:
    """torch.export takes one tensor that is given twice for one input, and the program keeps both."""
    case = OpCase(
        "add",
        "aten.add.Tensor",
        lambda size: [In("float32", (size, 4)), In("float32", (size, 4)), 1.0, Out("float32", (size, 4))],
        torch.add,
    )
    graph = build(case, 5)
    assert unread_inputs(graph, ["x", "y"]) == ()
    extended = replace(graph, inputs=(*graph.inputs, replace(graph.inputs[0])))
    assert unread_inputs(extended, ["x", "y", "mask"]) == ("mask",)


@pytest.mark.parametrize("kind", ["several", "language model"])
def test_inspect_predicts_a_load(capsys: Capture, kind: str) -> None:
    path = several() if kind == "several" else Path(liveshape.__file__).parent / "demo" / "story" / "model.pte"
    document = json.loads(call(capsys, "inspect", path, "--json", "--method", "forward")[1])
    opened = backends.open_device()
    opened._pipelines.clear()  # what another program compiled does not count
    compiled = opened.counters.pipelines
    with liveshape.load(path) as model:
        used = vars(model.memory)
    assert document["methods"][0]["memory"] == used
    assert document["methods"][0]["kernels"] == opened.counters.pipelines - compiled


def test_inspect_says_what_was_left_for_later(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.plan import routes

    document = json.loads(call(capsys, "inspect", several(), "--json", "--method", "forward")[1])
    assert document["methods"][0]["untried"] == 0
    assert document["methods"][0]["classes"] == document["methods"][0]["planned_nodes"] == 1
    assert "untried" not in call(capsys, "inspect", several(), "--method", "forward")[1]
    monkeypatch.setattr(routes, "_MAX_TRIALS", 3)
    document = json.loads(call(capsys, "inspect", several(), "--json", "--method", "forward")[1])
    left = document["methods"][0]["untried"]
    assert left > 5
    out = call(capsys, "inspect", several(), "--method", "forward")[1]
    assert f"untried: {left} combinations of live sizes, whose kernels compile at first use" in out
    assert "1 node after fusion, planned as 1 class" in out


def test_inspect_shows_what_was_fused(capsys: Capture) -> None:
    document = json.loads(call(capsys, "inspect", "demo", "--json")[1])
    fused = document["methods"][0]["fused"]
    assert any("aten.linear.default" in each and "aten.add.Tensor" in each for each in fused), fused
    _, out, _ = call(capsys, "inspect", "demo")
    assert "forward: operators that are one node" in out
    assert all(each in " ".join(out.split()) for each in fused)
    (epilogue, *_) = [each for each in document["methods"][0]["decisions"] if each["fusion"] == "epilogue"]
    assert epilogue["pays"]
    assert epilogue["together"] < epilogue["apart"]
    assert "forward: decided by cost, and the microseconds at the bounds" in out
    assert f"{1e6 * epilogue['apart']:.1f}" in out


@pytest.mark.usefixtures("no_adapter")
def test_inspect_needs_no_gpu(capsys: Capture) -> None:
    code, out, _ = call(capsys, "inspect", several())
    assert code == 0
    assert "no adapter here" in out


def test_inspect_says_that_products_are_split(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRODUCTS", "SIZE", "DEPTH"):
        monkeypatch.setattr(split_factors, f"MIN_SPLIT_{name}", 1)
    (file,) = RECORDED.glob("linears-*.pte")
    for limits in (Limits(), SPLITTING):
        monkeypatch.setattr(inspect, "_target", lambda device, limits=limits: inspect.Target("paper", limits))
        code, out, _ = call(capsys, "inspect", str(file))
        assert code == 0
        assert ("22 bits of each factor" in " ".join(out.split())) is (limits is SPLITTING)


def test_inspect_names_everything_unsupported(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.add.Tensor")
    monkeypatch.delitem(OPS, "et_vk.rms_norm.default")
    for room in ("tools.program_report", "run.host"):
        monkeypatch.setattr(f"liveshape.{room}.find_on_host", lambda name: "nothing on the host knows it")
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward")
    assert code == 4
    assert "2 parts CANNOT RUN" in out
    assert "1 x aten.add.Tensor (node" in out
    assert "outside of the delegate it would run" in out
    assert "outside of the delegate either" in out
    assert call(capsys, "run", several())[0] == 4


def test_what_the_host_computes_is_shown_and_can_be_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.add.Tensor")
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward")
    assert code == 0
    assert re.search(r"aten.add.Tensor\s+1\s+ON THE HOST", out)
    assert re.search(r"aten.add.Tensor \(node \d+\)\s+torch", out)
    report = json.loads(call(capsys, "inspect", several(), "--method", "forward", "--json")[1])
    assert [(each["operator"], each["library"]) for each in report["methods"][0]["host"]] == [
        ("aten.add.Tensor", "torch")
    ]
    assert call(capsys, "run", several(), "--print", "none")[0] == 0
    code, _, err = call(capsys, "run", several(), "--strict")
    assert code == 4
    assert "1 x aten.add.Tensor" in err
    assert "load without strict" in err


def test_inspect_shows_what_a_device_cannot_do(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.errors import UnsupportedError
    from liveshape.plan import plan_state

    def refuse(*given: Any) -> Any:
        raise UnsupportedError("not this one; nor that one")

    monkeypatch.setattr(plan_state, "specialize", refuse)
    monkeypatch.setattr("liveshape.run.host.find_on_host", lambda name: "nothing on the host knows it")
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward", "--json")
    problems = json.loads(out)["methods"][0]["problems"]
    assert code == 4
    assert ["rms_norm" in problem["node"] for problem in problems] == [True, False]
    assert all("not this one; nor that one" in problem["reason"] for problem in problems)


def test_inspect_tells_free_reads_from_round_trips(capsys: Capture) -> None:
    def reads(name: str) -> list[bool]:
        document = json.loads(call(capsys, "inspect", programs()[name].pte(), "--json")[1])
        return [read["free"] for read in document["methods"][0]["reads"]]

    assert set(reads("position")) == {True}
    assert set(reads("computed_position")) == {False}


def test_inspect_shows_portable_operators(capsys: Capture) -> None:
    document = json.loads(call(capsys, "inspect", portable(), "--json")[1])
    assert document["methods"][0]["portable"] == {"aten::add.out": 2}


def test_graphs_for_model_explorer(capsys: Capture, tmp_path: Path) -> None:
    """Every edge comes from an output that is there, layers are namespaces, and node data is of nodes of the graph."""
    file = tmp_path / "graph.json"
    code, _, _ = call(capsys, "inspect", shipped_model(), "--model-explorer", file)
    assert code == 0
    collection, data = (json.loads(path.read_text()) for path in (file, tmp_path / "graph.bytes.json"))
    assert collection["label"].endswith(".pte")
    (graph,) = collection["graphs"]
    outputs: dict[str, set[str]] = {}
    for node in graph["nodes"]:
        for edge in node["incomingEdges"]:
            assert edge["sourceNodeOutputId"] in outputs[edge["sourceNodeId"]], "only nodes before it feed a node"
        assert node["id"] not in outputs
        outputs[node["id"]] = {each["id"] for each in node["outputsMetadata"]}
    kernels = {each["value"] for node in graph["nodes"] for each in node["attrs"] if each["key"] == "kernels"}
    assert any("q4/" in name for name in kernels)
    assert {f"layer {layer}" for layer in range(8)} <= {node["namespace"] for node in graph["nodes"]}
    results = data[graph["id"]]["results"]
    assert results.keys() == {node["id"] for node in graph["nodes"] if not node["id"].startswith("input")}
    assert sum(each["value"] for each in results.values()) > 4_000_000, "weights are read once"


def test_a_graph_is_not_written_to_a_folder(capsys: Capture, tmp_path: Path) -> None:
    code, _, error = call(capsys, "inspect", shipped_model(), "--model-explorer", tmp_path)
    assert code == 2
    assert str(tmp_path) in error
