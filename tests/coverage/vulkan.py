"""The tests of ExecuTorch's Vulkan delegate, with a runtime that records."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

from tests.coverage.recording import Recorded, Recording, Suite, call

ORIGIN = "executorch.backends.vulkan.test.test_vulkan_delegate"


def vulkan_delegate() -> Suite:
    module = importlib.import_module(ORIGIN)
    names = sorted(name for name in vars(module.TestVulkanBackend) if name.startswith("test_"))
    tests = {name: partial(record_delegate_test, module, name) for name in names}
    return Suite("Vulkan delegate", ORIGIN, tests, {})


def record_delegate_test(module: ModuleType, name: str, recording: Recording) -> None:
    """A test with a runtime that records; those that are disabled for another device's sake are run as well."""

    def run(
        self: Any,
        program: Any,
        model: Any,
        sample_inputs: Any,
        atol: float = 1e-3,
        rtol: float = 1e-1,
        test_inputs: Any = None,
        first_output_only: bool = False,
    ) -> None:
        every = [sample_inputs, *(test_inputs or ())]
        calls = tuple(call(inputs, model(*inputs), first_output_only) for inputs in every)
        recording.programs.append(Recorded(bytes(program.buffer), calls, atol, rtol))

    kind = module.TestVulkanBackend
    with mock.patch.object(kind, "run_delegated_model_and_check_output", run):
        inspect.unwrap(getattr(kind, name))(kind(name))
