"""What pyproject.toml promises holds for what it depends on, and the version is the same everywhere."""

from __future__ import annotations

import os
import re
import runpy
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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


@pytest.fixture
def runtime_hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook of scripts/wheel_runtime.py, without the builder that calls it."""
    name = "hatchling.builders.hooks.plugin.interface"
    for end in range(1, name.count(".") + 2):
        monkeypatch.setitem(sys.modules, ".".join(name.split(".")[:end]), interface := ModuleType("none"))
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.delenv("LIVESHAPE_WHEEL_RUNTIME", raising=False)
    return runpy.run_path(str(ROOT / "scripts" / "wheel_runtime.py"))["RuntimeHook"]


def test_a_wheel_has_the_runtime_of_pages_that_was_built(
    runtime_hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    root = SimpleNamespace(root=str(tmp_path), app=SimpleNamespace(display_warning=told.append))

    def included(version: str = "standard") -> list[str]:
        data: dict[str, Any] = {"force_include": {}}
        runtime_hook.initialize(root, version, data)
        return list(data["force_include"].values())

    (tmp_path / "liveshape").mkdir()
    (tmp_path / "liveshape" / "cli.py").touch()
    os.utime(tmp_path / "liveshape" / "cli.py", (1, 1))
    assert included() == []
    assert "`make web` builds it" in told.pop()
    archive = tmp_path / "web" / "dist" / "liveshape.zip"
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert included() == ["liveshape/tools/web_page/runtime"]
    assert included("editable") == []
    monkeypatch.setenv("LIVESHAPE_WHEEL_RUNTIME", "0")
    assert included() == []
    monkeypatch.setenv("LIVESHAPE_WHEEL_RUNTIME", "1")
    os.utime(archive, (0, 0))
    with pytest.raises(RuntimeError, match=r"liveshape/cli\.py is newer than web/dist: run `make web` first"):
        included()
