"""An import that was interrupted, as the first load of a process imports much, can be begun again."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from liveshape import ops
from liveshape.ops.registry import OPS, op
from liveshape.packages import import_whole
from liveshape.run import host


def test_a_file_of_operators_that_was_imported_halfway_can_be_imported_again() -> None:
    assert len(OPS) > 100
    name = "liveshape.ops.softmax"
    before, known = sys.modules.pop(name), dict(OPS)  # as Python does with a module whose import failed
    try:
        again = importlib.import_module(name)
        assert again is not before
        assert OPS.keys() == known.keys()
    finally:
        sys.modules[name] = ops.softmax = before
        OPS.update(known)


def test_two_operators_of_one_name_are_still_refused() -> None:
    name = next(iter(OPS))
    with pytest.raises(ValueError, match="registered twice"):

        @op(name)
        def other(x: int, out: int) -> None: ...


TORCH = """
import os, signal, sys
from liveshape.run.host import find_on_host
signal.signal(signal.SIGINT, signal.default_int_handler)

class Sender:  # Ctrl-C when a module is asked for
    sent = False
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and not self.sent:
            Sender.sent = True
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Sender())
for turn in range({turns}):
    try:
        print("found", find_on_host("aten::linalg_inv_ex.inverse").library, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def imports(module: str, turns: int) -> list[str]:
    """What a process tells that asks for an operator of torch, with Ctrl-C when torch imports a module of its own."""
    code = TORCH.format(module=module, turns=turns)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.split("\n")[:-1]


def test_an_interrupt_while_torch_is_imported_leaves_it_whole() -> None:
    assert imports("torch._refs", 3) == ["interrupted", "found torch", "found torch"]


def test_a_process_that_ends_while_torch_is_imported_waits_for_it() -> None:
    assert imports("torch.autograd", 1) == ["interrupted"]


def test_what_is_imported_whole_fails_as_any_import_does() -> None:
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            import_whole("liveshape.no_such_module")
    assert import_whole("liveshape.packages").import_whole is import_whole


def test_a_torch_that_cannot_be_imported_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is after the caller's own import of it was cut."""

    def broken(module: str) -> None:
        raise RuntimeError("function '_has_torch_function' already has a docstring")

    monkeypatch.setattr(host, "import_whole", broken)
    host.find_on_host.cache_clear()
    try:
        assert host.find_on_host("aten::linalg_inv_ex.inverse") == (
            "torch, which could compute it on the host, cannot be imported (RuntimeError: function "
            "'_has_torch_function' already has a docstring): start Python anew, or install it again"
        )
    finally:
        host.find_on_host.cache_clear()
