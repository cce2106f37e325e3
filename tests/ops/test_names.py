"""Every operator of ExecuTorch's own registry has a kernel here, or a reason why not."""

from __future__ import annotations

from executorch.runtime import Runtime

from liveshape.ops import OPS

_ELSEWHERE = "is being written"
_GRADIENT = "a gradient: programs that train use the delegate's operators"
MISSING = {
    "aten::convolution_backward.out": _GRADIENT,
    "aten::max_pool2d_with_indices_backward.grad_input": _GRADIENT,
    **dict.fromkeys(
        (
            "aten::_adaptive_avg_pool2d.out",
            "aten::_upsample_bilinear2d_aa.out",
            "aten::avg_pool2d.out",
            "aten::convolution.out",
            "aten::grid_sampler_2d.out",
            "aten::max_pool2d_with_indices.out",
            "aten::pixel_shuffle.out",
            "aten::pixel_unshuffle.out",
            "aten::reflection_pad1d.out",
            "aten::reflection_pad2d.out",
            "aten::reflection_pad3d.out",
            "aten::replication_pad1d.out",
            "aten::replication_pad2d.out",
            "aten::replication_pad3d.out",
            "aten::upsample_bilinear2d.vec_out",
            "aten::upsample_nearest2d.vec_out",
        ),
        _ELSEWHERE,
    ),
}


def test_every_name_of_the_registry_is_known() -> None:
    names = set(Runtime.get().operator_registry.operator_names)
    assert len(names) > 200  # the registry was read
    assert names - set(OPS) == set(MISSING)
