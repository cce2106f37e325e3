"""The examples run as they stand, and the demo is right."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from liveshape.tools.commands.demo import PROMPT, demo

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["quickstart.py", "drop_in.py"])
def test_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert "(1, 7, 64)" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"), [("classify.py", "160 x 160"), ("listen.py", "218 frames"), ("segment.py", "76 x 76")]
)
def test_example_of_a_model_runs(
    name: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They compare with torch, or with the truth, and print how far off they are."""
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert shown in capsys.readouterr().out
    if name == "segment.py":
        assert (found["painted"] == found["mask"].numpy()).mean() > 0.95
        assert (tmp_path / "mask.png").read_bytes()[:4] == b"\x89PNG"
    else:
        ours = found["logits"] if name == "classify.py" else found["states"]
        assert abs(ours - found["golden"]).max() < 1e-3 * abs(found["golden"]).max()


def test_demo_tells_a_story_and_is_right_at_every_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo() == 0
    printed = capsys.readouterr().out
    assert printed.startswith(PROMPT)
    assert len(printed.split("tokens/s")[0].split()) > 60, "the story is too short to be one"
    assert "0 buffers created, 0 pipelines compiled" in printed
    assert "right at every live shape" in printed
