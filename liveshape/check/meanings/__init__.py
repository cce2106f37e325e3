"""What the operators mean that torch does not have: in numpy, in float64, as plainly as can be; a file per family.

A meaning takes the arguments of a node, tensors as arrays at their live shapes, and gives what the node writes, in the
order of `Node.written`: its outputs, then what it mutates. None stands for a result without a meaning of its own.
"""

from __future__ import annotations

from liveshape.check.meanings import (
    attention_meanings,
    int8_meanings,
    layer_meanings,
    pointwise_meanings,
    quantizing_meanings,
    scalar_meanings,
    training_meanings,
    weight_meanings,
)
from liveshape.check.meanings.meaning_table import MEANINGS, Meaning, meaning
from liveshape.check.meanings.open_writes import ANY_WINS, TWICE

FAMILIES = (
    attention_meanings,
    int8_meanings,
    layer_meanings,
    pointwise_meanings,
    quantizing_meanings,
    scalar_meanings,
    training_meanings,
    weight_meanings,
)

__all__ = ["ANY_WINS", "FAMILIES", "MEANINGS", "TWICE", "Meaning", "meaning"]
