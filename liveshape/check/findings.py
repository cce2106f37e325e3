"""What a check found: divergences by kind, what was compared, and what was not and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from liveshape.check.cases import Case
from liveshape.check.differences import Difference

# What a divergence is of.
OPERATOR, FUSION, PROGRAM, PLAN, AGAINST = "operator", "fusion", "program", "plan", "against"
REPEATED = "the same call gave other bytes the second time"


@dataclass(frozen=True)
class Divergence:
    """Where values differ first: a node of the program or of its fused form, its plan, or an output of the whole."""

    kind: str
    node: str
    operator: str
    sources: tuple[str, ...]  # the nodes of the file that it stands for
    kernels: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]  # of what it reads
    value: str  # what differs
    reason: str
    difference: Difference | None = None
    case: Case | None = None  # to run it alone, of the first node that diverged


@dataclass
class Found:
    """What a check found; `unknown` are nodes without a reference, with the reason."""

    checked: set[str] = field(default_factory=set)
    fused: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)
    divergences: list[Divergence] = field(default_factory=list)
    calls: int = 0
    planned: int = 0  # nodes whose plans were compared with a fresh build's, in all calls
    layers: int = 0  # of the model, where they were told apart
    chosen: tuple[int, ...] = ()  # the layers whose nodes ran alone
    by_reference: set[str] = field(default_factory=set)  # nodes of other layers, computed by their reference alone
    unreached: int = 0  # nodes that no call came to, since a jump led past them

    @property
    def right(self) -> bool:
        return not self.divergences
