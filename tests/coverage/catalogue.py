"""The operator catalogue of ExecuTorch's WebGPU backend, as tests/models/test_catalogue.py has it."""

from __future__ import annotations

from functools import partial

from tests.coverage.recording import Recorded, Recording, Suite, call
from tests.support.catalogue import case_files, cases


def catalogue() -> Suite:
    tests = {f"{suite}.{case}": partial(record_case, suite, case) for suite, case in [*cases(), *cases(heavy=True)]}
    return Suite("Operator catalogue", "executorch.backends.webgpu.test.op_tests", tests, {})


def record_case(suite: str, case: str, recording: Recording) -> None:
    files = case_files(suite, case)
    recording.programs.append(
        Recorded(files.pte.read_bytes(), (call(files.inputs, files.goldens),), files.atol, files.rtol, apart=True)
    )
