"""Counts the lines of the areas that issue 43 names: pointwise, movement, reduction and 4-bit fusion, WGSL and Python.

Run: python scripts/area_lines.py [REVISION ...]      5c52e2d and HEAD where none is named; --files lists every file
"""

from __future__ import annotations

import re
import subprocess
import sys

# Files below liveshape/, by area, those that are gone among them.
AREAS = {
    "pointwise": (
        r"kernels/(composition|function_library|pointwise_\w+|prologues|roofline)\.py|kernels/wgsl/(elementwise|complex)/"
        r"|graph/expression\.py|lower/((pointwise|prologue|composed)_fusion|fusion_costs|fusion|pattern|pattern_operators)\.py"
        r"|ops/(pointwise|composed|loaded|pointwise_operators|binary|unary|compare|complexes|convert|creation|broadcasting|fused)\.py"
        r"|check/meanings/pointwise_\w+\.py|check/numpy_references/(elementwise|creation)_\w+\.py"
    ),
    "movement": (
        r"kernels/wgsl/movement/|ops/(copies|movement|views|concatenation|padding|moved_rows)\.py"
        r"|lower/(index_maps|layout_patterns|live_sizes)\.py"
    ),
    "reduction": (
        r"kernels/wgsl/(reduction|normalization)/"
        r"|ops/(reduction|lane_reduction|stages|softmax|scan|normalization)\.py"
    ),
    "4-bit": r"kernels/wgsl/(q4|quantization)/|ops/(q4_\w+|quantiz\w+)\.py|lower/q4_patterns\.py",
}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def lines_at(revision: str) -> dict[str, dict[str, int]]:
    """Lines of every file of each area."""
    found: dict[str, dict[str, int]] = {area: {} for area in AREAS}
    for path in git("ls-tree", "-r", "--name-only", revision, "liveshape/").splitlines():
        for area, pattern in AREAS.items():
            if path.endswith((".py", ".wgsl")) and re.match(f"liveshape/(?:{pattern})", path):
                found[area][path] = git("show", f"{revision}:{path}").count("\n")
    return found


def main() -> None:
    listed = "--files" in sys.argv
    revisions = [each for each in sys.argv[1:] if each != "--files"] or ["5c52e2d", "HEAD"]
    counts = [lines_at(revision) for revision in revisions]
    print(f"| lines | {' | '.join(revisions)} |\n|{' --- |' * (1 + len(revisions))}")
    for area in AREAS:
        print(f"| {area} | {' | '.join(f'{sum(each[area].values()):,}' for each in counts)} |")
        for path in sorted({path for each in counts for path in each[area]}) if listed else ():
            print(f"| {path} | {' | '.join(str(each[area].get(path, 0)) for each in counts)} |")
    print(f"| all | {' | '.join(f'{sum(sum(a.values()) for a in each.values()):,}' for each in counts)} |")


if __name__ == "__main__":
    main()
