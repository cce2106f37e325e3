"""The workflows run what the Makefile has, and every tier of it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.conftest import SLOW_CASES

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
MAKEFILE = (ROOT / "Makefile").read_text()


def targets() -> set[str]:
    named = " ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)).replace("$(TIERS)", " ".join(tiers()))
    return set(named.split())


def tiers() -> list[str]:
    (named,) = re.findall(r"^TIERS := (.*)$", MAKEFILE, re.MULTILINE)
    return str(named).split()


def test_every_target_that_a_workflow_makes_exists() -> None:
    for path in WORKFLOWS.glob("*.yml"):
        made = re.findall(r"\bmake ([\w-]+)", path.read_text())
        assert set(made) <= targets(), f"{path.name} makes {set(made) - targets()}"


def test_every_tier_runs_at_night() -> None:
    (rest,) = re.findall(r"^test-all: (.*)$", MAKEFILE, re.MULTILINE)
    wanted = {*tiers(), *rest.replace("$(TIERS)", "").split()} - {"test"}
    listed = re.findall(r"^ +- (test-[\w-]+)$", (WORKFLOWS / "tiers.yml").read_text(), re.MULTILINE)
    assert set(listed) == wanted
    assert len(listed) == len(wanted)


def test_slow_tests_of_every_folder_are_in_a_tier() -> None:
    paths = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py") if "mark.slow" in path.read_text()]
    paths += [Path(case.partition("::")[0]) for case in SLOW_CASES]
    folders = {f"{path.parts[0]}/{path.parts[1]}" for path in paths if len(path.parts) > 2}
    run = set(re.findall(r"tests/\w+", MAKEFILE))
    assert folders <= run, f"no tier of the Makefile runs the slow tests of {sorted(folders - run)}"


def test_every_tier_is_told_to_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`make {tier}`" in text or f"`{tier}`" in text for tier in tiers())


def test_workflows_do_not_go_on_without_a_browser(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "ensure-chromium.sh").write_text("exit 1")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()

    def parts(**environment: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "-s", "-C", str(tmp_path), "page-parts"]
        plain = {name: value for name, value in os.environ.items() if name not in ("REQUIRE_PAGES", "MAKEFLAGS")}
        return subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=False)

    assert parts().returncode == 0
    refused = parts(REQUIRE_PAGES="yes")
    assert refused.returncode != 0
    assert "LIVESHAPE_CHROMIUM" in refused.stderr
    assert "REQUIRE_PAGES=yes .ci/run" in (ROOT / ".github" / "workflows" / "test.yml").read_text()
