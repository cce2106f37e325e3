"""Views: alone in a graph they alias their input, and the input is what comes back under another shape."""

from __future__ import annotations

from tests.ops.cases.movement import KINDS, moved
from tests.support.graphs import Sym

CASES = [
    *moved(
        "view to heads",
        "aten.view_copy.default",
        KINDS,
        lambda s: [(1, s, 12)],
        lambda x, s: [x, [1, Sym(s), 3, 4]],
        lambda x, s: x.view(1, s, 3, 4),
    ),
    *moved(
        "view with a free size",
        "aten.view_copy.default",
        ("float32", "bool"),
        lambda s: [(2, s, 5)],
        lambda x, s: [x, [5, -1]],
        lambda x, s: x.view(5, -1),
    ),
    *moved(
        "squeeze dims",
        "aten.squeeze_copy.dims",
        KINDS,
        lambda s: [(1, s, 1, 5)],
        lambda x, s: [x, [0, -2]],
        lambda x, s: x.squeeze((0, 2)),
    ),
    *moved(
        "squeeze a longer dim",
        "aten.squeeze_copy.dim",
        ("float32",),
        lambda s: [(1, s, 5)],
        lambda x, s: [x, 2],
        lambda x, s: x.squeeze(2),
    ),
    *moved(
        "squeeze everything",
        "aten.squeeze_copy.default",
        ("float32",),
        lambda s: [(1, s + 1, 1)],
        lambda x, s: [x],
        lambda x, s: x.squeeze(),
    ),
    *moved(
        "unsqueeze",
        "aten.unsqueeze_copy.default",
        KINDS,
        lambda s: [(s, 5)],
        lambda x, s: [x, -1],
        lambda x, s: x.unsqueeze(-1),
    ),
    *moved(
        "permuted view",
        "liveshape.permuted_view",
        KINDS,
        lambda s: [(s, 1, 5)],
        lambda x, s: [x, (1, 0, 2)],
        lambda x, s: x.permute(1, 0, 2),
    ),
    *moved(
        "clone",
        "aten.clone.default",
        ("float32", "float16"),
        lambda s: [(s, 3)],
        lambda x, s: [x, None],
        lambda x, s: x.clone(),
    ),
    *moved(
        "alias",
        "aten.alias_copy.default",
        ("int32",),
        lambda s: [(s, 3)],
        lambda x, s: [x],
        lambda x, s: x.clone(),
    ),
]
