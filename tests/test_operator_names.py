"""Operators are named in ops/, in the table of patterns and where programs are written; all others ask for traits."""

from __future__ import annotations

import ast
from pathlib import Path

from liveshape.ops import OPS

PACKAGE = Path(__file__).parent.parent / "liveshape"
FREE = ("ops", "export")  # operators themselves, and what writes them into files
# What may name operators, and why.
ALLOWED = {
    "check/meanings/attention_meanings.py": "what attention and caches mean, written down",
    "check/meanings/int8_meanings.py": "what layers between integers mean",
    "check/meanings/layer_meanings.py": "what normalization, rotary embeddings and convolutions mean",
    "check/meanings/open_writes.py": "operators that leave open which of two values wins",
    "check/meanings/pointwise_meanings.py": "what expressions mean",
    "check/meanings/quantizing_meanings.py": "what quantization means",
    "check/meanings/scalar_meanings.py": "what scalars and copies mean",
    "check/meanings/training_meanings.py": "what training operators mean",
    "check/meanings/weight_meanings.py": "what layers and embeddings of few bits mean",
    "lower/pattern_operators.py": "the one table of the operators that patterns are of",
    "kernels/pointwise_table.py": "the functions that pointwise operators are made of",
    "run/host.py": "the operators that numpy computes, by the names of files",
    "tools/measuring/random_llamas.py": "writes a program, as an exporter does",
    "llm/text/template_budget.py": "tests of Jinja: eq, ne, lt, gt",
    "llm/text/template_filters.py": "filters and tests of Jinja: round, eq, ne, lt, le, gt, ge",
}


def named(path: Path) -> set[str]:
    """The strings of a file that are names of operators."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)} & {*OPS}


def test_operators_are_named_where_they_are_defined() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in FREE and (names := named(path))
    }
    told = {path: sorted(names) for path, names in found.items() if path not in ALLOWED}
    assert not told, f"ask for a trait of graph/traits.py instead: {told}"
    assert found.keys() == ALLOWED.keys(), "a file that names none needs no leave"


def test_every_name_of_the_table_is_an_operator() -> None:
    from liveshape.lower import pattern_operators

    values = [value for name, value in vars(pattern_operators).items() if name.isupper() and name != "OPS"]
    names = {name for value in values for name in ([value] if isinstance(value, str) else [*value])}
    assert names <= OPS.keys()
    assert len(pattern_operators.RMS_NORM_LAYERS) == 4


def test_what_an_operator_was_fused_from_exists() -> None:
    for name, entry in OPS.items():
        assert set(entry.traits.fused_from) <= OPS.keys(), name
