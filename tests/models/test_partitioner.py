"""Every operator that the installed partitioner delegates is one that we have."""

from __future__ import annotations

from typing import Any

from liveshape.ops.registry import callable_by_files
from tests.support.exporting import quiet

# Keys that are names of operators: a file holds the name that their nodes have after the partitioner's passes.
NAMED = {
    "llama::sdpa_with_kv_cache": "sdpa_with_kv_cache.default",
    "llama::update_cache": "update_cache.default",
    "llama::custom_sdpa": "custom_sdpa.default",
    "et_vk::sdpa": "et_vk.sdpa.default",
    "et_vk::adamw_step": "adamw_step.default",
}

# Keys that no file holds, with the reason.
NEVER_WRITTEN = {
    "getitem": "the values of a list are named by the list",
    "_assert_scalar.default": "the partitioner's RemoveAssertsTransform takes it out",
    "sym_constrain_range_for_size.default": "the partitioner's RemoveAssertsTransform takes it out",
}


def written_name(key: Any) -> str:
    """The name in a file of what the registry has under a key."""
    return NAMED[key] if isinstance(key, str) else key.__name__


def test_every_key_of_the_partitioner_is_an_operator() -> None:
    with quiet():
        from executorch.backends.vulkan.op_registry import vulkan_supported_ops
    names = {written_name(key) for key in vulkan_supported_ops}
    assert len(names) == len(vulkan_supported_ops)
    assert names >= NEVER_WRITTEN.keys()
    missing = sorted(name for name in names - NEVER_WRITTEN.keys() if callable_by_files(name) is None)
    assert not missing, f"{len(missing)} of {len(names)} are missing: {', '.join(missing)}"


def test_what_no_file_holds_is_what_the_partitioner_removes() -> None:
    with quiet():
        from executorch.backends.vulkan._passes.remove_asserts import RemoveAssertsTransform
    removed = {target.__name__ for target in RemoveAssertsTransform.assert_ops}
    assert NEVER_WRITTEN.keys() == {"getitem", *removed}
