"""Every operator of ExecuTorch's own registry has a kernel here, or a reason why not."""

from __future__ import annotations

from executorch.runtime import Runtime

from liveshape.ops import OPS

MISSING = {"aten::convolution_backward.out": "a gradient: programs that train use the delegate's operators"}


def test_every_name_of_the_registry_is_known() -> None:
    names = set(Runtime.get().operator_registry.operator_names)
    assert len(names) > 200  # the registry was read
    assert names - set(OPS) == set(MISSING)
