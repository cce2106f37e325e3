"""The signature of a file: what is written is read, and whatever else a file holds is a FormatError that names it."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest

from liveshape.errors import FormatError, LiveshapeError, UnsupportedError
from liveshape.formats import ExecutionPlan, InputSignature, Signature, Size, TensorSpec
from liveshape.formats.signature import SIGNATURE, assumed_signature, read_signatures, signature_text

FORWARD = Signature(
    (
        InputSignature("x", (Size(2, 16, "batch"), Size(8, 8))),
        InputSignature("y", (Size(5, 33, "batch", 2, 1),)),
        InputSignature("k", None, True, 3),
        InputSignature("o", None, True, None),
        InputSignature("live"),
    ),
    (("==", ("%", ("*", ("size", 0, 0), ("size", 0, 1)), 8), 0),),
)


def tensor(*shape: int, dynamism: str = "bound") -> TensorSpec:
    return TensorSpec("float32", shape, tuple(range(len(shape))), dynamism)


def method(name: str, values: tuple[Any, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> ExecutionPlan:
    return ExecutionPlan(name, values, inputs, outputs, (), (), ())


def plans(text: Any) -> dict[str, ExecutionPlan]:
    forward = method("forward", (tensor(16, 8), tensor(33), 3, None, 0), (0, 1, 2, 3, 4), (0,))
    return {"forward": forward, SIGNATURE: method(SIGNATURE, (text,), (), (0,))}


def document() -> Any:
    return json.loads(signature_text({"forward": FORWARD}))


def test_what_is_written_is_read() -> None:
    assert read_signatures(plans(signature_text({"forward": FORWARD}))) == {"forward": FORWARD}
    assert read_signatures({"forward": plans("")["forward"]}) == {}


def test_a_range_wider_than_the_memory_ends_with_it() -> None:
    wide = document()
    wide["methods"]["forward"]["inputs"][0]["dims"][0] = {"symbol": "batch", "min": 0, "max": 99}
    found = read_signatures(plans(json.dumps(wide)))["forward"].inputs[0].sizes
    assert found is not None
    assert found[0] == Size(0, 16, "batch")


def test_files_without_one_have_what_their_tensors_say() -> None:
    plan = method("forward", (tensor(1, 8), tensor(4, dynamism="static"), 7), (0, 1, 2), (0,))
    x, y, number = assumed_signature(plan).inputs
    assert x.sizes is not None
    assert [(size.min, size.max, size.symbol is None) for size in x.sizes] == [(1, 1, True), (0, 8, False)]
    assert y == InputSignature("input 1", (Size(4, 4),))
    assert (number.sizes, number.fixed) == (None, False)


def changed(path: str, value: Any) -> str:
    """The document with one value replaced; the path is of keys and places."""
    made = document()
    *way, last = path.split(".")
    place = made
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(made)


IN = "methods.forward.inputs"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("9" * 5000, "no JSON"),
        (" " * ((1 << 20) + 1), "characters"),
        ("[]", "an object is expected"),
        (7, "one string"),
        (changed("version", 0), "version"),
        (changed("version", True), "version"),
        (changed("methods", []), "methods"),
        (changed("methods", {"backward": {}}), "no method"),
        (changed(IN, {}), "inputs"),
        (changed(IN, []), "0 inputs, the method takes 5"),
        (changed(IN, [{}] * 9), "9 items"),
        (changed(f"{IN}.1.name", "x"), "a second input 'x'"),
        (changed(f"{IN}.0.name", ""), r"inputs\[0\]\.name"),
        (changed(f"{IN}.0.name", "\x1b[2J"), r"inputs\[0\]\.name"),
        (changed(f"{IN}.0.name", "x" * 300), r"inputs\[0\]\.name"),
        (changed(f"{IN}.0.name", 10**400), r"above 64 bits"),
        (changed(f"{IN}.0.dims", [8]), r"inputs\[0\]\.dims"),
        (changed(f"{IN}.0.dims.1", 7), r"dims\[1\]: static at 7, the file has 8"),
        (changed(f"{IN}.0.dims.1", True), r"dims\[1\]"),
        (changed(f"{IN}.0.dims.0.min", -1), r"dims\[0\]\.min"),
        (changed(f"{IN}.0.dims.0.min", 17), r"dims\[0\]\.min"),
        (changed(f"{IN}.0.dims.0.max", 1), r"dims\[0\]\.max"),
        (changed(f"{IN}.0.dims.0.max", 1 << 70), r"dims\[0\]\.max"),
        (changed(f"{IN}.0.dims.0.symbol", None), r"dims\[0\]\.symbol"),
        (changed(f"{IN}.1.dims.0.scale", 0), r"dims\[0\]\.scale"),
        (changed(f"{IN}.1.dims.0.offset", 0.5), r"dims\[0\]\.offset"),
        (changed(f"{IN}.2.dims", []), "no tensor"),
        (changed(f"{IN}.2.value", [1]), r"inputs\[2\]\.value"),
        (changed("methods.forward.guards.0", 1), r"guards\[0\]"),
        (changed("methods.forward.guards.0", ["==", 1]), r"guards\[0\]"),
        (changed("methods.forward.guards.0", ["**", 1, 1]), r"'\*\*' is no operator"),
        (changed("methods.forward.guards.0", ["==", ["size", 0, 2], 1]), r"guards\[0\]"),
        (changed("methods.forward.guards.0", ["==", ["size", 9, 0], 1]), r"guards\[0\]"),
        (changed("methods.forward.guards.0", ["==", ["size", 2, 0], 1]), r"guards\[0\]"),
        (changed("methods.forward.guards", [["==", 1, 1]] * 2000), "guards"),
    ],
)
def test_what_is_none_is_named(text: Any, named: str) -> None:
    with pytest.raises(FormatError, match=rf"{SIGNATURE}.*{named}"):
        read_signatures(plans(text))


def test_deep_guards_end() -> None:
    guard: Any = 1
    for _ in range(200):
        guard = ["*", guard, 1]
    with pytest.raises(FormatError, match="deep"):
        read_signatures(plans(changed("methods.forward.guards.0", ["==", guard, 1])))


def test_a_later_version_asks_for_an_update() -> None:
    with pytest.raises(UnsupportedError, match="update"):
        read_signatures(plans(changed("version", 2)))


@pytest.mark.parametrize("seed", range(300))
def test_mutated_texts_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    text = list(signature_text({"forward": FORWARD}))
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(text))
        text[place] = chance.choice(['"', "{", "}", "[", "]", ",", "9", "-", "null", "1e9", "\\u0000", ""])
    # Anything but an error of ours is a failure.
    with suppress(LiveshapeError):
        read_signatures(plans("".join(text)))
