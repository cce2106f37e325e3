"""Software drivers: the newest comes first, and every so many operators are right on it, whatever the tests run on."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from liveshape.device import software_driver
from liveshape.device.backends import list_adapters

ROOT = Path(__file__).parents[2]

SWEEPS = """
from liveshape.device.backends import open_device
from tests.ops.cases import CASES
from tests.support.graphs import sweep
for case in CASES[::STEP]:
    sweep(case)
print(open_device().adapter.driver)
"""


def _child(code: str, **environment: str) -> str:
    named = {name: value for name, value in os.environ.items() if not name.startswith(("VK_", "GALLIVM_"))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=named | environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


@pytest.mark.parametrize("step", [640, pytest.param(20, marks=pytest.mark.slow)])
def test_operators_are_right_on_the_driver_that_people_get(step: int) -> None:
    driver = _child(SWEEPS.replace("STEP", str(step)))
    assert driver == _child("from liveshape.device.backends import list_adapters; print(list_adapters()[0].driver)")


@pytest.mark.parametrize("step", [640, pytest.param(20, marks=pytest.mark.slow)])
def test_operators_are_right_on_dawn(step: int) -> None:
    """On the newest driver, since Dawn takes no older one."""
    assert "Mesa" in _child(SWEEPS.replace("STEP", str(step)), LIVESHAPE_BACKEND="dawn")


def test_a_driver_that_the_environment_names_is_the_only_one() -> None:
    """`make test` names one, so that nothing that was unpacked beside it comes along."""
    listed = "from liveshape.device.backends import list_adapters; print(len(list_adapters()))"
    named = os.environ.get("VK_DRIVER_FILES")
    if named is not None:
        assert int(_child(listed, VK_DRIVER_FILES=named)) == len(list_adapters())
    # An unknown file is no driver: what the environment says holds, and nothing is added to it.
    missing = "import os; from liveshape.device.software_driver import offer_software_driver as offer; offer(); "
    assert _child(missing + "print(os.environ.get('VK_ADD_DRIVER_FILES'))", VK_ICD_FILENAMES="/nowhere.json") == "None"


def test_an_unpacked_driver_is_added_to_those_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "share" / "liveshape" / "vulkan").mkdir(parents=True)
    (tmp_path / "share" / "liveshape" / "vulkan" / "driver.json").write_text("{}")
    code = f"""
import os, sys
sys.prefix = {str(tmp_path)!r}
from liveshape.device.software_driver import offer_software_driver
offer_software_driver()
print(os.environ["VK_ADD_DRIVER_FILES"])
"""
    assert _child(code) == str(tmp_path / "share" / "liveshape" / "vulkan" / "driver.json")


def test_the_newest_software_driver_is_chosen() -> None:
    from liveshape.device.adapters import _rank

    drivers = [("CPU", "Mesa 22.3.6 (LLVM 15.0.6)"), ("CPU", "Mesa 25.0.7-2 (LLVM 15)"), ("DiscreteGPU", "580.159.04")]
    assert sorted(drivers, key=lambda each: _rank(*each)) == [drivers[2], drivers[1], drivers[0]]
    assert software_driver.offer_software_driver() is None


def test_what_the_scripts_import_is_there() -> None:
    """An import that fails in `ensure-adapter.sh` reads as a machine without a GPU."""
    text = "".join(path.read_text() for path in (ROOT / "scripts").glob("*.sh"))
    imports = re.findall(r"^from (liveshape[\w.]*) import (\w+)$", text, re.MULTILINE)
    assert imports
    assert all(hasattr(importlib.import_module(module), name) for module, name in imports)
