"""What a device allows, and what follows from it: which matrices may multiply, how many bindings a tensor takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Turns of all loops of a thread together, those of loops inside of loops counted: llvmpipe of Mesa 22 ends every loop
# of a thread after 65,535 of them, in silence. A loop of a branch that is not taken counts as one there.
MAX_TURNS = 32768
MANY_THREADS = 32  # cooperating threads from which on a device is taken to have threads by the thousand
# The dtype that products of matrices are summed in, by that of their inputs: no sum is rounded more than today's.
_SUMS = {"float32": "float32", "float16": "float32", "int8": "int32"}


@dataclass(frozen=True)
class MatrixShape:
    """A product of matrices that a device computes at once: m x k times k x n of `input`, added to m x n of `result`.

    Example: `MatrixShape("float16", "float32", m=16, n=16, k=16)`.
    """

    input: str
    result: str
    m: int
    n: int
    k: int


class MatrixUse(Enum):
    """What a program takes matrix units for."""

    NOTHING = 0
    FLOAT32 = 1  # products of numbers that are split, which pays where matrix units are fast
    PRODUCTS = 2  # of halves or bytes


@dataclass(frozen=True)
class Limits:
    """What a device allows; the defaults are what every WebGPU device must offer, so planning needs no GPU."""

    max_groups: int = 65535
    max_invocations: int = 256
    max_binding_bytes: int = 128 << 20
    max_buffer_bytes: int = 256 << 20
    max_bindings: int = 8
    max_workgroup_bytes: int = 16384
    uniform_alignment: int = 256
    half: bool = True
    subgroup: int = 0  # its size, a power of two; 0 where there are no shuffles
    max_cooperating_threads: int = 256  # on one unit of work: few where threads are not there by the thousand
    lanes: int = 0  # of a subgroup whose shuffles serve where threads are few, and nowhere else; 0 where there are none
    matrices: tuple[MatrixShape, ...] = ()  # of its matrix units; none where it has none
    fast_matrices: bool = False  # whether three products of halves by these take less than one of float32 by threads
    max_turns: int = MAX_TURNS  # beyond which an operator goes in stages
    cuts_loops: bool = False  # whether its driver ends loops that make twice as many
    # Chosen by the user, not by the device: a row is summed in one order, however many rows are live beside it; and
    # float32 inputs of products may be rounded to float16 for matrix units, which sum in float32.
    one_order: bool = False
    half_inputs: bool = False

    @property
    def has_many_threads(self) -> bool:
        """Whether the device has threads by the thousand: split-K fills it, and recomputing costs less than a dispatch.

        >>> Limits().has_many_threads, Limits(max_cooperating_threads=4).has_many_threads
        (True, False)
        """
        return self.max_cooperating_threads >= MANY_THREADS

    def matrices_of(self, dtype: str) -> tuple[MatrixShape, ...]:
        """The matrices that may multiply inputs of a dtype, with sums in float32 or int32; none without matrix units.

        >>> halves = MatrixShape("float16", "float32", 16, 16, 16)
        >>> Limits(matrices=(halves,)).matrices_of("float16") == (halves,)  # a float16 program, as it is
        True
        >>> Limits(matrices=(halves,)).matrices_of("float32")  # rounding is the user's choice
        ()
        >>> Limits(matrices=(halves,), half_inputs=True).matrices_of("float32") == (halves,)
        True
        """
        inputs = (dtype, "float16") if dtype == "float32" and self.half_inputs else (dtype,)
        return tuple(each for each in self.matrices if each.input in inputs and each.result == _SUMS.get(each.input))

    @property
    def few_threads_lanes(self) -> int:
        """Threads of a workgroup that share what they load by shuffles; 0 where threads are many, or have none.

        >>> Limits(max_cooperating_threads=4, lanes=8).few_threads_lanes, Limits(lanes=8).few_threads_lanes
        (8, 0)
        """
        return 0 if self.has_many_threads or self.lanes > self.max_invocations else self.lanes


def segment_bytes(limits: Limits) -> int:
    """The bytes of one segment: the largest power of two that a binding may cover, so that shifts find it.

    >>> segment_bytes(Limits(max_binding_bytes=4000))
    2048
    """
    return 1 << (limits.max_binding_bytes.bit_length() - 1)


def binding_parts(nbytes: int, block_bytes: int, limits: Limits) -> int:
    """How many bindings a tensor of `nbytes` takes that begins a block of `block_bytes`.

    A block above the limit of a buffer lies in several, each of one segment, whatever the tensor in it needs.

    >>> binding_parts(2800, 2800, Limits(max_binding_bytes=4000))
    1
    >>> binding_parts(2800, 7200, Limits(max_binding_bytes=4000, max_buffer_bytes=4096))
    2
    """
    if nbytes <= limits.max_binding_bytes and block_bytes <= limits.max_buffer_bytes:
        return 1
    return max(1, -(-nbytes // segment_bytes(limits)))
