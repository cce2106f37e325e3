"""Which operators go into delegates: what ExecuTorch's Vulkan partitioner takes, where tensors go in and come out."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from executorch.backends.vulkan._passes import RemoveRedundantOpsTransform
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data, tag_mutated_buffer
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch.fx import Node

from liveshape.errors import UnsupportedError

_TAG = "delegation_tag"
_DROPPED, _COPIES = RemoveRedundantOpsTransform.redundant_ops, RemoveRedundantOpsTransform._src_arg1_ops
_BASE_INDEX = "_base_index"  # behind the name of an argument that is a view of a buffer, or the buffer itself
Review = Callable[[list[Node], int], None]


class TensorPartitioner(Partitioner):
    """ExecuTorch's VulkanPartitioner, less the partitions that a delegate cannot be made of.

    Those that compute numbers alone, or tensors of numbers and constants alone, stay outside. A delegate that owns a
    buffer of which another operator makes the next value gets `alias_buffer_mutations`: its file would not say where
    that comes from. `review` sees what stays outside and the number of delegates, before any of them is compiled.

    Example: `to_edge_transform_and_lower(program, partitioner=[TensorPartitioner({}, lambda outside, count: None)])`.
    """

    def __init__(self, options: Mapping[str, Any], review: Review) -> None:
        self._vulkan = VulkanPartitioner(dict(options))
        self.delegation_spec = self._vulkan.delegation_spec
        self._aliasing = VulkanPartitioner({**options, "alias_buffer_mutations": True}).delegation_spec
        self._review = review

    def ops_to_not_decompose(self, program: Any) -> Any:
        """The operators to keep whole."""
        return self._vulkan.ops_to_not_decompose(program)

    def partition(self, program: Any) -> PartitionResult:
        """Tag the nodes of each delegate."""
        tags = self._vulkan.partition(program).partition_tags
        members = defaultdict(list)
        for node in program.graph.nodes:
            if node.op == "call_function" and _TAG in node.meta:
                members[node.meta[_TAG]].append(node)
        for tag, nodes in members.items():
            if not _can_be_delegate(nodes):
                for node in nodes:
                    del node.meta[_TAG]
                del tags[tag]
        for node in program.graph.nodes:
            if node.op == "placeholder":
                node.meta.pop(_TAG, None)
        tag_constant_data(program)
        tag_mutated_buffer(program)
        for node in _shared_buffers(program):
            node.meta.pop(_TAG, None)
        _refuse_old_reads(program)
        _refuse_written_views(program)
        for value, buffer in _next_values(program):
            if buffer.meta.get(_TAG) in tags and _origin(value) is not buffer:
                tags[buffer.meta[_TAG]] = self._aliasing
        outside = [node for node in program.graph.nodes if node.op == "call_function" and _TAG not in node.meta]
        self._review(outside, len(tags))
        return PartitionResult(tagged_exported_program=program, partition_tags=tags)


def _shared_buffers(program: Any) -> list[Node]:
    """Buffers that change and that more than one delegate has to do with, or a delegate and what is outside of it.

    A delegate that owned one would keep the next value to itself. Nor may it own one of which the old value is read
    when the next one was computed, since it drops the copies in between.
    """
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    shared = []
    for value, buffer in _next_values(program):
        touching = [value, *(user for user in (*buffer.users, *value.users) if user.op != "output")]
        source = _copied(value)
        is_returned = value.name in program.graph_signature.user_outputs
        is_shared = len({user.meta.get(_TAG) for user in touching}) > 1 or is_returned
        if is_shared or source.op == "placeholder" or _last_read(buffer, order) > order[source]:
            shared.append(buffer)
    return shared


def _next_values(program: Any) -> list[tuple[Node, Node]]:
    """The next value of each buffer that changes, and the buffer."""
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    buffers = {target: nodes[name] for name, target in signature.inputs_to_buffers.items() if name in nodes}
    return [(nodes[result], buffers[target]) for result, target in signature.buffers_to_mutate.items()]


def _copied(value: Node) -> Node:
    """What a value is, less the copies that a delegate drops."""
    while value.target in _DROPPED:
        value = value.args[1 if value.target in _COPIES else 0]
    return value


def _origin(value: Node) -> Node:
    """What a value was before operators wrote into it: a cache that operators write in place is its own next value."""
    value = _copied(value)
    while value.target is operator.getitem and value.args[0].target is auto_functionalized_v2:
        call, place = value.args
        # The bases are the last results.
        base = place - len(call.meta["val"]) + len(call.kwargs["_all_bases"])
        if base < 0:
            break
        value = _copied(call.kwargs["_all_bases"][base])
    return value


def _refuse_old_reads(program: Any) -> None:
    """Raise for a value that an operator of a delegate writes in place and that others read as it was before.

    A delegate drops copies and orders operators by what they read, so they would read the next value.
    """
    for call in program.graph.nodes:
        if call.target is not auto_functionalized_v2 or _TAG not in call.meta:
            continue
        for base in call.kwargs["_all_bases"]:
            readers = [user.name for user in base.users if user is not call and user.op != "output"]
            if readers:
                name = _buffer_of(program, base)
                raise UnsupportedError(
                    f"{call.args[0]} writes {name} in place, and {', '.join(readers)} would read what it was before, "
                    "which a delegate does not keep: read it after it is written, or write it with operators of torch "
                    "(self.cache.copy_(...)), which keep the old value",
                    tuple(("node", reader) for reader in readers),
                )


def _refuse_written_views(program: Any) -> None:
    """Raise for a view that an operator writes in place and that is made by strides, or by a slice inside a delegate.

    The exporter writes `aten.as_strided` and `aten.slice.Tensor` for them, which no runtime has in these places.
    """
    for call in program.graph.nodes:
        if call.target is not auto_functionalized_v2:
            continue
        for key, index in call.kwargs.items():
            view = key.removesuffix(_BASE_INDEX)
            kinds = ("_size", "_slice_dim") if _TAG in call.meta else ("_size",)
            if view == key or not any(f"{view}{kind}" in call.kwargs for kind in kinds):
                continue
            name = _buffer_of(program, call.kwargs["_all_bases"][index])
            raise UnsupportedError(
                f"{call.args[0]} writes a view of {name} in place (its argument {view.lstrip('_')}), which no program "
                "can say: give it the whole buffer, in the shape that it is registered with, and each layer a buffer "
                "of its own; or write the part with operators of torch (self.cache[1:2].copy_(...))",
                (("node", call.name),),
            )


def _buffer_of(program: Any, value: Node) -> str:
    origin = _origin(value).name
    return str(program.graph_signature.inputs_to_buffers.get(origin, origin))


def _last_read(buffer: Node, order: Mapping[Node, int]) -> int:
    """The place of the last operator that reads a value, by way of copies that are dropped as well."""
    users = [user for user in buffer.users if user.target not in _COPIES or user.args[1] is buffer]
    reads = (_last_read(user, order) if user.target in _DROPPED else order[user] for user in users)
    return max(reads, default=-1)


def _can_be_delegate(nodes: list[Node]) -> bool:
    inside = set(nodes)
    results = [node for node in nodes if not inside.issuperset(node.users)]
    inputs = {each for node in nodes for each in node.all_input_nodes} - inside
    live = [each for each in inputs if getattr(each.meta.get("val"), "constant", None) is None]
    return any(map(_holds_tensor, results)) and any(map(_holds_tensor, live))


def _holds_tensor(node: Node) -> bool:
    value = node.meta.get("val")
    return any(isinstance(each, torch.Tensor) for each in (value if isinstance(value, (list, tuple)) else (value,)))
