"""What pyproject.toml promises holds for what it depends on, and the version is the same everywhere."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

import liveshape
from liveshape.device import wgpu_native
from liveshape.errors import DeviceError

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = PROJECT["requires-python"].removeprefix(">=")


def minor(version: str) -> int:
    major, minor, *_ = version.split(".")
    assert major == "3"
    return int(minor)


def test_what_is_held_to_one_series_runs_on_the_oldest_python() -> None:
    wanted = re.match(r">=\s*(3\.\d+)", metadata("wgpu")["Requires-Python"])
    assert wanted is not None
    assert minor(OLDEST) >= minor(wanted[1])


def test_the_oldest_python_is_the_same_everywhere() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["python_version"] == OLDEST
    assert tools["ruff"]["target-version"] == f"py3{minor(OLDEST)}"
    assert f"Python {OLDEST} or newer" in (ROOT / "README.md").read_text()
    listed = [each.split(" :: ")[-1] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert min(listed, key=minor) == OLDEST


def test_the_range_of_wgpu_is_the_one_that_is_checked() -> None:
    major, series = wgpu_native.SERIES
    wanted = f"wgpu>={major}.{series},<{major}.{series + 1}; sys_platform != 'emscripten'"  # a page has its own GPU
    assert wanted in PROJECT["dependencies"]
    for version in (f"{major}.{series - 1}.9", f"{major}.{series + 1}.0", f"{major + 1}.0.0", f"{major}.{series}0.1"):
        with pytest.raises(DeviceError, match="pip install 'wgpu>="):
            wgpu_native.check_series(version)


def test_a_package_can_be_found_again() -> None:
    assert all(url.startswith("https://") for url in PROJECT["urls"].values())


def test_the_changelog_has_the_version_that_the_command_prints() -> None:
    headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert liveshape.__version__ in headings
