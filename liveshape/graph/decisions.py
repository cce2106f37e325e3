"""What was decided by cost when a graph was fused: kept with the graph, for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """A fusion of nodes that stand for these operators, and the seconds that they are expected to take both ways."""

    fusion: str
    operators: tuple[str, ...]
    apart: float
    together: float

    @property
    def pays(self) -> bool:
        """Whether it was made: at equal seconds there is one kernel less to compile."""
        return self.together <= self.apart

    @property
    def what(self) -> str:
        """The operators, each once."""
        return " + ".join(dict.fromkeys(self.operators))

    def __str__(self) -> str:
        made = "fused" if self.pays else "left apart"
        expected = f"{1e6 * self.apart:.1f} us apart, {1e6 * self.together:.1f} us together"
        return f"{made}: {self.what}, {self.fusion}: {expected}"
