"""ExecuTorch's tests for all backends, which ask a runner to lower and to run a model, with a runner that records."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.coverage.recording import Recorded, Recording, Suite, call, failure

ORIGIN = "executorch.backends.test.suite"
SEED = 0


def backend_suite(part: str) -> Suite:
    """The tests of operators, or of models."""
    package = importlib.import_module(f"{ORIGIN}.{part}")
    tests: dict[str, Callable[[Recording], None]] = {}
    absent: dict[str, str] = {}
    for found in sorted(pkgutil.iter_modules([str(Path(package.__file__ or "").parent)]), key=lambda each: each.name):
        try:
            module = importlib.import_module(f"{ORIGIN}.{part}.{found.name}")
        except ImportError as error:
            absent[found.name] = str(error)
            continue
        for name, function in sorted(vars(module).items()):
            if name.startswith("test_") and callable(function):
                for label, values in expanded(function):
                    title = f"{found.name.removeprefix('test_')}.{name.removeprefix('test_')}{label}"
                    tests[title] = partial(record_backend_test, function, values)
    return Suite(f"Backend suite, {part}", f"{ORIGIN}.{part}", tests, absent)


def expanded(function: Callable[..., Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parameters of a test, as pytest would make them of its marks."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    axes = []
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for chosen in itertools.product(*axes):
        values = {name: value for row in chosen for name, value in row.items()}
        label = ", ".join(f"{name}={value}".removeprefix("dtype=torch.") for name, value in sorted(values.items()))
        yield f" [{label}]" if label else "", values


def record_backend_test(function: Callable[..., Any], values: dict[str, Any], recording: Recording) -> None:
    try:
        function(Runner(recording), **values)
    except (pytest.skip.Exception, unittest.SkipTest) as skipped:
        recording.failure = f"skipped there: {skipped}"


class Runner:
    """Their runner with a flow of ours: what their portable kernels cannot run is lowered and recorded as well."""

    def __init__(self, recording: Recording) -> None:
        from executorch.backends.test.suite.flow import TestFlow

        self.recording = recording
        tester = partial(recording_tester(), recording)
        self._flow = TestFlow("liveshape", "liveshape", tester, is_delegated=False)  # tests look at it under this name

    def lower_and_run_model(
        self, model: Any, inputs: Any, generate_random_test_inputs: bool = True, dynamic_shapes: Any = None
    ) -> None:
        from executorch.backends.test.suite import reporting, runner

        with (
            mock.patch.object(reporting, "_active_session", reporting.TestSessionState(seed=SEED)),
            mock.patch.object(runner, "UNSUPPORTED_PORTABLE_OPS", set()),
            mock.patch.object(runner, "_graph_has_unsupported_patterns", return_value=False),
        ):
            summary = runner.run_test(
                model, inputs, self._flow, "liveshape", "liveshape", 0, None, dynamic_shapes,
                generate_random_test_inputs,
            )  # fmt: skip
        # A test goes on with its other models, so that all of them are seen.
        if not summary.result.is_success() and not self.recording.failure:
            self.recording.failure = failure(summary.error or RuntimeError(summary.result.name))


def recording_tester() -> Any:
    from executorch.backends.vulkan.test.tester import VulkanTester

    class RecordingTester(VulkanTester):
        """Exports as for Vulkan; its last stage writes down instead of running."""

        def __init__(self, recording: Recording, module: Any, example_inputs: Any) -> None:
            super().__init__(module, example_inputs)
            self.recording = recording

        def run_method_and_compare_outputs(
            self, inputs: Any = None, atol: float = 1e-3, rtol: float = 1e-3, **_: Any
        ) -> Any:
            from executorch.backends.test.harness.stages import StageType

            given = inputs if inputs else next(self.generate_random_inputs())
            reference, _scale = self._calculate_reference_output(self.stages[StageType.EXPORT].artifact, given)
            self.recording.programs.append(Recorded(bytes(self.get_artifact()), (call(given, reference),), atol, rtol))
            return self

    return RecordingTester
