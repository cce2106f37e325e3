"""The list of operators as a document: `python -m liveshape.tools.operators > docs/operators.md`."""

from __future__ import annotations

from collections import defaultdict

from liveshape.ops import OPS

_TITLE = """# Operators

Written by `python -m liveshape.tools.operators`; do not edit. Names with a dot are those of Vulkan delegates, names
with `::` those of portable calls in the outer program. Both run the same generator on the GPU.
"""


def document() -> str:
    """Every exported name, by the family that implements it."""
    families: dict[str, list[str]] = defaultdict(list)
    for name, entry in OPS.items():
        if not name.startswith("liveshape."):
            families[entry.run.__module__.rsplit(".", 1)[-1]].append(name)
    sections = []
    for family in sorted(families):
        names = ", ".join(f"`{name}`" for name in sorted(families[family]))
        sections.append(f"## {family}\n\n{names}")
    return "\n".join([_TITLE, "\n\n".join(sections)]) + "\n"


if __name__ == "__main__":
    print(document(), end="")
