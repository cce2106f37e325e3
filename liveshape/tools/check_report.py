"""What `liveshape check` says of a method, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any

from liveshape.check.findings import Divergence, Found
from liveshape.check.generation import Comparison
from liveshape.check.language_models import LanguageCall
from liveshape.tools.console import counted, print_table, print_text


@dataclass(frozen=True)
class CheckedMethod:
    """What was found of one method; of a language model generation, too, and ways to load it that were left out."""

    found: Found
    steps: tuple[LanguageCall, ...] = ()
    generation: tuple[Comparison, ...] = ()
    left: dict[str, str] | None = None

    @property
    def right(self) -> bool:
        return self.found.right and all(row.right for row in self.generation)


def document(checked: CheckedMethod) -> dict[str, Any]:
    """What was found, for `--json`.

    Example: `print_json(document(checked))`.
    """
    found = checked.found
    made: dict[str, Any] = {
        "right": checked.right,
        "calls": found.calls,
        "checked": len(found.checked),
        "fused": len(found.fused),
        "planned": found.planned,
        "layers": {"all": found.layers, "checked": list(found.chosen), "by_reference": len(found.by_reference)},
        "unreached": found.unreached,
        "unknown": found.unknown,
        "divergences": [asdict(replace(divergence, case=None)) for divergence in found.divergences],
    }
    if checked.steps:
        made["steps"] = [{"tokens": len(step.tokens), "position": step.position} for step in checked.steps]
        made["generation"] = [{**asdict(row), "right": row.right} for row in checked.generation]
        made["left_out"] = checked.left or {}
    return made


def print_found(name: str, checked: CheckedMethod) -> None:
    """Print what was found of a method.

    Example: `print_found("forward", checked)`.
    """
    found = checked.found
    sizes = f"{counted(found.calls, 'call')} at {'its' if found.calls == 1 else 'their'} live shapes"
    print_text(
        f"{name}: {counted(len(found.checked), 'node')} and {len(found.fused)} fused compared with a reference, {sizes}"
    )
    if checked.steps:
        print_text(f"  tokens at positions: {', '.join(str(step) for step in checked.steps)}")
    _print_sample(found)
    for reason, count in Counter(found.unknown.values()).items():
        print_text(f"  not compared, {count}: {reason}")
    if found.unreached:
        print_text(f"  not reached by these calls: {counted(found.unreached, 'node')}, which a jump led past")
    for each in found.divergences:
        print_text(_told(each))
    if checked.generation:
        columns = ("loaded with", "compared", "off by", "allowed", "same token", "")
        print_table("  logits, off by in standard deviations", columns, [_row(row) for row in checked.generation])
    for way, why in (checked.left or {}).items():
        print_text(f"  not compared: {way}: {why}")
    wrong = len(found.divergences) + sum(not row.right for row in checked.generation)
    print_text("  no value differs" if checked.right else f"  {counted(wrong, 'divergence')}")


def _print_sample(found: Found) -> None:
    if found.by_reference:
        layers = ", ".join(str(layer) for layer in found.chosen)
        print_text(
            f"  a sample: layers {layers} of {found.layers}; {counted(len(found.by_reference), 'node')} of the others "
            "ran in the whole program alone (--all checks every one)"
        )


def _row(row: Comparison) -> tuple[str, ...]:
    same = f"{row.agree} of {row.count}"
    return row.way, row.compared, f"{row.error:.1e}", f"{row.tolerance:.1e}", same, "" if row.right else "DIFFERS"


def _told(each: Divergence) -> str:
    rows = [f"  {each.kind} {each.node}: {each.reason}"]
    if each.difference is not None:
        rows.append(f"    {each.value}: {each.difference}")
    rows.append(f"    reads {', '.join(f'{name} {shape}' for name, shape in each.shapes.items())}")
    if each.kernels:
        rows.append(f"    kernels {', '.join(each.kernels)}")
    if each.sources:
        rows.append(f"    of the file: {', '.join(each.sources)}")
    return "\n".join(rows)
