"""FLOPs of a product, for profiles: a multiply and an add for each pair of factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liveshape.graph.elements import prod
from liveshape.graph.traits import Operations

_NIBBLES_RANK = 2  # of a weight with two nibbles in a byte; one more, and it is int8 by groups


def matrix(left: str = "x") -> Operations:
    """Every element of the result is as many products as the left factor is deep.

    Example: `Product(matrix("x"))`.
    """

    def operations(given: Mapping[str, Any]) -> int:
        return int(2 * given[left].shape[-1] * given["out"].numel)

    return operations


def packed_weight(given: Mapping[str, Any]) -> int:
    """Each byte of a 4-bit weight holds two elements, or one where it has groups for a dimension; for every row."""
    x = given["x"]
    weights = [each for each in (given["weight"], given.get("value_weight")) if each is not None]
    operations = sum((4 if weight.rank == _NIBBLES_RANK else 2) * weight.numel for weight in weights)
    return int(x.numel // max(x.shape[-1], 1) * operations)


def convolved(given: Mapping[str, Any]) -> int:
    """All elements of a filter for each element of the output, or of the input where it is transposed."""
    return _filtered(given, "x" if given.get("transposed") else "out")


def convolved_transposed(given: Mapping[str, Any]) -> int:
    """The same of an operator that is transposed by its name."""
    return _filtered(given, "x")


def _filtered(given: Mapping[str, Any], met: str) -> int:
    weight = given["weight"]
    return int(2 * given[met].numel * weight.numel // max(weight.shape[0], 1))


def attended(given: Mapping[str, Any]) -> int:
    """Q @ K over all keys that are given, and softmax @ V over all values."""
    return int(4 * given["q"].numel * given["k"].shape[-2])


def attended_in_lines(given: Mapping[str, Any]) -> int:
    """The same of lines of paged attention, as if each had the longest context of its kind: the device alone knows it.

    A line of few rows counts as one query.
    """
    _, rows, *head = given["q"].shape
    few = min(given["few"], rows) if given["tiles"] else rows
    few_keys, tile_keys = (
        min(given[context], given["window"] or given[context]) for context in ("few_context", "tile_context")
    )
    return int(4 * prod(head) * (few * few_keys + (rows - few) * tile_keys))


def attended_causally(start: str) -> Operations:
    """Q @ K over the keys of a cache that each row may see, and softmax @ V over the values of these.

    Example: `Product(attended_causally("input_pos"))`.
    """

    def operations(given: Mapping[str, Any]) -> int:
        q = given["q"]
        return int(4 * q.numel * (2 * given[start] + q.shape[1] + 1) // 2)

    return operations
