"""`liveshape inspect --html`: what the page holds, against the engine; the browser is in test_program_page.py."""

from __future__ import annotations

import base64
import json
import re
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape import ops
from liveshape.errors import LiveshapeError
from liveshape.graph import Graph, Limits, Tensor
from liveshape.kernels.requests import Read
from liveshape.lower.problems import Problem
from liveshape.plan.compiling import compile
from liveshape.plan.cost import Cost, costs
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import load_program
from liveshape.shipped import shipped_model
from liveshape.tools.measuring.random_llamas import SHAPES, llama_graph
from liveshape.tools.program_page.document import method_document
from liveshape.tools.program_page.folds import folds_of
from liveshape.tools.program_page.live_samples import Sampler, samples
from liveshape.tools.program_page.program_html import page
from liveshape.tools.program_report import planned_method
from tests.cli.calls import Capture, call
from tests.runtime.files import several
from tests.support.programs import programs

HOSTILE = "</script><img src=x onerror=alert(1)>"


def document_in(html: bytes) -> dict[str, Any]:
    """The document that a page holds."""
    (packed,) = re.findall(rb'id="data">([^<]*)<', html)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def plan_of(path: Path, method: str = "forward") -> Plan:
    with load_program(CompileTarget(), program_file(path)) as opened:
        (plan,) = (each for each in opened.file.plans if each.name == method)
        compiled = planned_method(opened.file, plan, opened.data, Limits()).compiled
    assert compiled is not None
    return compiled


def hostile_graph() -> Graph:
    x, out = (Tensor(f"{HOSTILE} {name}", "float32", (4, 8)) for name in ("x", "out"))
    node = ops.OPS["aten.sigmoid.default"].bind(0, f"{HOSTILE} (node 0)", (x, out))
    return Graph(HOSTILE, (node,), (x, out), (x,), (out,))


def size_at(document: dict[str, Any], size: int, point: int) -> Any:
    held = document["sizes"][size]
    return held["values"][point] if isinstance(held, dict) else held


def shape_at(document: dict[str, Any], value: int, point: int) -> Any:
    held = document["values"][value]
    if held["kind"] == "scalar":
        return size_at(document, held["size"], point)
    return tuple(size_at(document, size, point) for size in document["shapes"][held["shape"]])


def takes(live: PlanState, shape: tuple[int, ...], number: int) -> bool:
    """Plan with this shape of the first input, and this number wherever the plan reads data."""
    try:
        live.set(live.plan.graph.inputs[0], shape)
        live.begin()
        live.walk(0, len(live.nodes), lambda node, request: number if isinstance(request, Read) else None)
    except LiveshapeError:
        return False
    return True


@pytest.mark.parametrize("limits", [Limits(), Limits(subgroup=32, half=False)])
def test_every_sample_is_what_the_engine_plans(limits: Limits) -> None:
    plan = compile(llama_graph(SHAPES["tiny"], limits), limits)
    document = method_document(plan.graph, plan)
    assert [axis["symbol"] for axis in document["axes"]] == ["S", "start"]
    points = [(size, start) for size in document["axes"][0]["values"] for start in document["axes"][1]["values"]]
    assert {(1, 0), (128, 0), (1, 255)} <= set(points)
    refused, live = 0, PlanState(plan)
    for point, (size, start) in enumerate(points):
        if not takes(live, (1, size), start):
            assert document["refused"][point]
            refused += 1
            continue
        assert point not in document["refused"]
        for index, (node, shown) in enumerate(zip(plan.graph.nodes, document["nodes"], strict=True)):
            values = [*shown["inputs"], *shown.get("outputs", []), *shown.get("changes", [])]
            written = [value for value in node.written if value not in node.inputs]
            changed = [value for value in node.written if value in node.inputs]
            for value, place in zip([*node.inputs, *written, *changed], values, strict=True):
                now = live.tensor(value).shape if isinstance(value, Tensor) else live.scalar(value).value  # type: ignore[arg-type]
                assert shape_at(document, place, point) == now
            steps, read, wrote, operations = document["records"][document["behaviours"][shown["behaviour"]][point]]
            kernels = [(document["kernels"][kernel], tuple(grid)) for kernel, *grid in steps]
            assert kernels == [(label, grid) for label, _, _, grid in live.described(index)]
            assert Cost(read, wrote, operations) == sum(costs(live.nodes[index], limits.half), Cost())
    assert 0 < refused < len(points) / 4


@pytest.mark.parametrize(
    "name",
    [
        *("two_dims", "convolution/image", "convolution/signal", "position"),
        pytest.param("size_arithmetic", marks=pytest.mark.slow),
    ],
)
def test_shapes_as_functions_are_right_between_the_samples(name: str) -> None:
    plan = plan_of(programs()[name].pte())
    found = samples(plan)
    document = method_document(plan.graph, plan)
    assert found.axes
    values = {
        value: document["values"][place]
        for node, shown in zip(plan.graph.nodes, document["nodes"], strict=True)
        for value, place in zip(node.inputs, shown.get("inputs", []), strict=True)
        if isinstance(value, Tensor)
    }
    sampler, random = Sampler(plan), np.random.default_rng(0)
    told = tried = 0
    for _ in range(24):
        sizes = [int(random.integers(axis.values[0], axis.values[-1] + 1)) for axis in found.axes]
        sample = sampler.at(found.axes, sizes)
        if sample.refused:
            continue
        tried += 1
        names = {axis.symbol: size for axis, size in zip(found.axes, sizes, strict=True)}
        for value, held in values.items():
            for size, now in zip(document["shapes"][held["shape"]], sample.values[value], strict=True):
                text = document["sizes"][size]
                if isinstance(text, dict) and text["text"] is None:
                    continue  # sampled
                text = text["text"] if isinstance(text, dict) else str(text)
                assert eval(text, {}, names) == now, f"{value.name}: {text} at {names}"
                told += text.isidentifier()
    assert tried > 3
    assert told


def test_kernels_change_between_neighbours(capsys: Capture, tmp_path: Path) -> None:
    """Where a node takes other kernels, both sizes are sampled, so that the page says exactly where."""
    code, _, _ = call(capsys, "inspect", shipped_model(), "--html", tmp_path / "model.html")
    assert code == 0
    (method,) = document_in((tmp_path / "model.html").read_bytes())["methods"]
    sizes, starts = (axis["values"] for axis in method["axes"])
    changes = 0
    for node in method["nodes"]:
        row = method["behaviours"][node["behaviour"]]
        kernels = [
            None if row[place] is None else [kernel for kernel, *_ in method["records"][row[place]][0]]
            for place in range(0, len(row), len(starts))
        ]
        for (before, size), (after, other) in pairwise(zip(kernels, sizes, strict=True)):
            assert before == after or other == size + 1
            changes += before != after
    assert changes > 8


def test_layers_fold_and_lifetimes_are_those_of_the_plan() -> None:
    plan = plan_of(shipped_model())
    document = method_document(plan.graph, plan)
    ((name, first, last, alike, layers),) = document["folds"]
    assert (name, alike) == ("8 layers", 1)
    assert [layer[0] for layer in layers] == [f"layer {number}" for number in range(8)]
    assert layers[0][1] == first
    assert layers[-1][2] == last
    assert all(one[2] == other[1] for one, other in pairwise(layers))
    memory = document["memory"]
    assert memory["total"] == sum(memory[part] for part in ("weights", "state", "activations", "staging", "params"))
    users: dict[int, list[int]] = {}
    for place, node in enumerate(document["nodes"]):
        for value in (*node["inputs"], *node.get("outputs", []), *node.get("scratch", [])):
            users.setdefault(value, []).append(place)
    taken: dict[int, list[tuple[int, int]]] = {}
    for block, nbytes, begin, end, persistent, values in memory["storages"]:
        assert nbytes <= memory["blocks"][block]
        uses = [place for value in values for place in users.get(value, [])]
        if persistent or not uses:
            continue
        assert begin <= min(uses)
        assert end >= max(uses)
        assert all(begin > later or end < earlier for earlier, later in taken.get(block, []))
        taken.setdefault(block, []).append((begin, end))
    assert sum(memory["blocks"][block] for block in taken) == memory["activations"]


def test_what_repeats_folds_where_nothing_tells_layers() -> None:
    block = "abcdefg" * 5
    (folds,) = folds_of(f"x{block}hh{block}hhy")
    assert (folds.name, folds.first, folds.last) == ("2 blocks", 1, 75)
    inner = folds.folds[0].folds
    assert [(fold.name, fold.last - fold.first) for fold in inner] == [("5 blocks", 35)]
    assert folds_of("abcdefgh") == ()


def test_the_page_of_a_large_model_is_small() -> None:
    limits = Limits()
    plan = compile(llama_graph(SHAPES["1b"], limits), limits)
    document = method_document(plan.graph, plan)
    assert len(document["nodes"]) > 150
    assert len(document["classes"]) < 20, "stored once"
    assert len(document["behaviours"]) < 20
    held = page({"program": "1b.pte", "methods": [document]})
    assert len(held) < 200_000
    assert len(held) - len(page({"program": "1b.pte", "methods": []})) < 40_000


def test_a_hostile_name_is_text() -> None:
    plan = compile(hostile_graph(), Limits())
    problem = Problem(f"{HOSTILE} (node 7)", HOSTILE, HOSTILE)
    html = page({"program": HOSTILE, "methods": [method_document(plan.graph, plan, [problem])]})
    assert HOSTILE.encode() not in html
    assert html.count(b"<script") == html.count(b"</script>") == 2
    assert b"<img" not in html
    (method,) = document_in(html)["methods"]
    assert method["name"] == HOSTILE
    assert method["nodes"][1]["problem"] == HOSTILE


def test_what_cannot_run_is_on_the_page(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(ops.OPS, "aten.add.Tensor")
    for room in ("tools.program_report", "run.host"):
        monkeypatch.setattr(f"liveshape.{room}.find_on_host", lambda name: "nothing on the host knows it")
    file = tmp_path / "model.html"
    code, out, _ = call(capsys, "inspect", several(), "--method", "forward", "--html", file)
    assert code == 4
    assert "CANNOT RUN" in out
    (method,) = document_in(file.read_bytes())["methods"]
    labels = [method["classes"][node["class"]]["label"] for node in method["nodes"]]
    reasons = [node.get("problem", "") for node in method["nodes"]]
    assert labels == ["rms_norm", "add"], "where the file has it"
    assert reasons[0] == ""
    assert reasons[1]


def test_what_the_host_computes_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(ops.OPS, "aten.add.Tensor")
    file = tmp_path / "model.html"
    assert call(capsys, "inspect", several(), "--method", "forward", "--html", file)[0] == 0
    (method,) = document_in(file.read_bytes())["methods"]
    (reason,) = [node["host"] for node in method["nodes"] if "host" in node]
    assert "torch" in reason


def test_times_and_errors_are_those_of_the_files(capsys: Capture, tmp_path: Path) -> None:
    times, errors, file = (tmp_path / name for name in ("times.json", "errors.json", "model.html"))
    plan = plan_of(several())
    label, operator = plan.graph.nodes[0].label, plan.graph.nodes[0].name
    line = {"name": label, "operator": operator, "seconds": 0.25}
    other = {"name": "not of this program (node 99)", "operator": "", "seconds": 0.75}
    times.write_text(json.dumps({"profiles": [{"name": "forward", "turns": 1, "by_node": [line, other]}]}))
    divergence = {"kind": "operator", "node": label, "value": "output 0", "reason": "4 of 8 numbers differ"}
    found = {"right": False, "calls": 2, "checked": 2, "fused": 0, "unknown": {}, "divergences": [divergence]}
    errors.write_text(json.dumps({"methods": {"forward": found}}))
    arguments = ("inspect", several(), "--method", "forward", "--html", file, "--profile", times, "--check", errors)
    assert call(capsys, *arguments)[0] == 0
    (method,) = document_in(file.read_bytes())["methods"]
    (profile,) = method["profiles"]
    assert profile["nodes"] == {"0": 0.25}
    assert profile["seconds"] == 1.0
    assert method["check"]["divergences"][0]["places"] == [0]


def test_a_real_profile_and_a_real_check(capsys: Capture, tmp_path: Path) -> None:
    times, errors, file = (tmp_path / name for name in ("times.json", "errors.json", "model.html"))
    times.write_text(call(capsys, "profile", several(), "--input-shapes", "1x7x64", "--json")[1])
    errors.write_text(call(capsys, "check", several(), "--method", "forward", "--json")[1])
    arguments = ("inspect", several(), "--method", "forward", "--html", file, "--profile", times, "--check", errors)
    assert call(capsys, *arguments)[0] == 0
    (method,) = document_in(file.read_bytes())["methods"]
    (profile,) = method["profiles"]
    assert profile["nodes"].keys() == {"0"}
    assert sum(profile["nodes"].values()) == pytest.approx(profile["seconds"])
    assert method["check"]["right"]
    assert method["check"]["checked"] == 2


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("--profile", None, "cannot be read"),
        ("--profile", "{", "it is no JSON"),
        ("--profile", "[]", "has no 'profiles'"),
        ("--profile", '{"profiles": [{"by_node": []}]}', "no times of nodes"),
        ("--profile", '{"profiles": [{"by_node": [{"name": "x", "seconds": 1}]}]}', "none of its nodes"),
        ("--profile", '{"profiles": [{"by_node": [7]}]}', "no name and seconds"),
        ("--check", '{"methods": []}', "has no 'methods'"),
        ("--check", '{"methods": {"decode": {}}}', "it checked the methods decode"),
        ("--check", '{"methods": {"forward": {}}}', "not what liveshape check --json writes"),
    ],
)
def test_files_that_are_something_else(capsys: Capture, tmp_path: Path, flag: str, text: str | None, said: str) -> None:
    given, file = tmp_path / "given.json", tmp_path / "model.html"
    if text is not None:
        given.write_text(text)
    code, _, error = call(capsys, "inspect", several(), "--method", "forward", "--html", file, flag, given)
    assert code == 2
    assert said in error
    assert str(given) in error
    assert not file.exists()


def test_flags_that_need_the_page_and_a_page_that_cannot_be_written(capsys: Capture, tmp_path: Path) -> None:
    code, _, error = call(capsys, "inspect", several(), "--check", "check.json")
    assert (code, "--html FILE" in error) == (2, True)
    code, _, error = call(capsys, "inspect", several(), "--html", tmp_path)
    assert (code, "it is a folder" in error) == (2, True)
