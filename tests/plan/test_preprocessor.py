"""Includes, choices and conditions of .wgsl files. No GPU."""

from __future__ import annotations

import pytest

from liveshape.errors import PlanError
from liveshape.kernels import Kernel
from liveshape.kernels.preprocessor import choose, expand, parse, resolve, texts

NESTED = """
#choice EPILOGUE: store, added, gated
fn before() {}
#if EPILOGUE == store
fn stored() {}
#else
#if EPILOGUE == added
fn added() {}
#elif EPILOGUE != store
fn gated() {}
#endif
fn not_stored() {}
#endif
fn after() {}
"""


def functions(text: str) -> list[str]:
    return [line.split()[1].removesuffix("()") for line in text.splitlines() if line.startswith("fn")]


def text_of(source: str, **given: str) -> str:
    file = parse("sample", source)
    return "".join(texts(tuple(expand(file.pieces, choose("sample", file, given), set()))))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["before", "stored", "after"]),
        ({"EPILOGUE": "added"}, ["before", "added", "not_stored", "after"]),
        ({"EPILOGUE": "gated"}, ["before", "gated", "not_stored", "after"]),
    ],
)
def test_only_the_branch_that_was_chosen_is_there(given: dict[str, str], expected: list[str]) -> None:
    assert functions(text_of(NESTED, **given)) == expected


def test_conditions_on_constants_wait_for_a_variant() -> None:
    pieces = parse(
        "sample", "#if ROWS == 2\nfn two() {}\n#elif WIDE\nfn wide() {}\n#else\nfn other() {}\n#endif\n"
    ).pieces
    for constants, expected in (
        ({"ROWS": "2u", "WIDE": "true"}, "two"),
        ({"ROWS": "4u", "WIDE": "true"}, "wide"),
        ({"ROWS": "4u", "WIDE": "false"}, "other"),
        ({"ROWS": 2, "WIDE": "0u"}, "two"),
    ):
        assert functions(resolve(pieces, constants)) == [expected]


def test_a_file_is_included_once() -> None:
    text = text_of("#include common/each\nfn own() {}\n#include common/each\n")
    assert functions(text).count("main(") == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n#if WIDE\nfn f() {}\n", r"sample.wgsl:2: this #if has no #endif"),
        ("fn f() {}\n#endif\n", r"sample.wgsl:2 #endif : there is no #if that this belongs to"),
        ("#if WIDE\n#else\n#elif WIDE\n#endif\n", r"sample.wgsl:3: #elif stands behind #else"),
        (
            "#if WIDE > 2\n#endif\n",
            r"sample.wgsl:1: a condition is NAME, NAME == value or NAME != value, not 'WIDE > 2'",
        ),
        ("#ifdef WIDE\n", r"sample.wgsl:1: #ifdef is no directive"),
        ("#if WIDE\n#choice A: b, c\n#endif\n", r"sample.wgsl:2: a choice is"),
        ("#choice A: b\n#choice A: c\n", r"sample.wgsl:2: a choice is"),
        ("\n#if WIDE\nfn f() {}\n#endif\n", r"sample.wgsl:2: kernel sample has no constant and no choice WIDE"),
        ("#choice A: b, c\n#if A == d\n#endif\n", r"sample.wgsl:2: A is one of b, c; compare it"),
        ("#choice A: b, c\n#if A\n#endif\n", r"sample.wgsl:2: A is one of b, c; compare it"),
        (
            "override WIDE: bool = true;\n#if WIDE\n#include common/each\n#endif\n",
            r"sample.wgsl:3: #include cannot depend on WIDE, which only a variant knows",
        ),
        (
            "override WIDE: bool = true;\n#if WIDE\noverride OP: u32 = 0;\n#endif\n",
            r"kernel sample: only a #choice may decide on override OP: u32 = 0;",
        ),
    ],
)
def test_a_bad_file_is_told_with_its_line(source: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Kernel.parse("sample", source)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"EPILOGUE": "three"}, "kernel sample takes store or added or gated for EPILOGUE, not three"),
        ({"PROLOGUE": "norm"}, "kernel sample takes nothing for PROLOGUE, not norm"),
    ],
)
def test_what_is_no_choice_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Kernel.parse("sample", NESTED, **given)
