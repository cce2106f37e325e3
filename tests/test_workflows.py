"""The workflows run what the Makefile has, and every tier of it."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_every_tier_is_told_to_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`make {tier}`" in text or f"`{tier}`" in text for tier in tiers())
