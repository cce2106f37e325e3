"""The documents say what is so."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

from liveshape.tools.commands.ops import markdown

ROOT = Path(__file__).parent.parent


def test_the_list_of_operators_is_up_to_date() -> None:
    assert (ROOT / "docs" / "operators.md").read_text() == markdown()


def test_the_map_names_every_module() -> None:
    text = (ROOT / "docs" / "structure.md").read_text().replace("\\", "")
    for path in (ROOT / "liveshape").glob("*.py"):
        assert f"**{path.name}**" in text, f"docs/structure.md says nothing about {path.name}"
    for path in (ROOT / "liveshape").rglob("__init__.py"):
        if path.parent.name != "liveshape" and "wgsl" not in path.parts:
            assert f"**{path.parent.name}/**" in text, f"docs/structure.md says nothing about {path.parent}"
    words = {Path(word).name.removesuffix(".py") for word in re.findall(r"[`*]([\w./]+)[`*]", text)}
    missing = {path.stem for path in (ROOT / "liveshape").rglob("*.py")} - words - {"__init__"}
    assert not missing, f"docs/structure.md says nothing about {sorted(missing)}"
    known = {
        path.name
        for folder in ("liveshape", "tests", "bench", "examples", "scripts")
        for path in (ROOT / folder).rglob("*.py")
    }
    gone = {Path(word).name for word in re.findall(r"`([\w./]+\.py)`", text)} - known
    assert not gone, f"docs/structure.md names {sorted(gone)}, which are not there"


def test_no_two_modules_have_one_name() -> None:
    names = Counter(path.name for path in (ROOT / "liveshape").rglob("*.py") if path.name != "__init__.py")
    assert not [name for name, count in names.items() if count > 1]


def test_no_two_classes_have_one_name() -> None:
    texts = (path.read_text() for path in (ROOT / "liveshape").rglob("*.py"))
    names = Counter(name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE))
    assert not [name for name, count in names.items() if count > 1]


def test_the_table_of_exit_codes_is_that_of_the_command() -> None:
    from liveshape.cli import _CODES, EXIT_CODES, _parser

    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE)
    assert {int(code): what for code, what in rows} == EXIT_CODES
    assert {code for _, code in _CODES} <= EXIT_CODES.keys()
    told = " ".join(_parser().format_help().split())
    assert all(f"{code} {what}" in told for code, what in EXIT_CODES.items())


def test_the_readme_names_only_commands_that_exist() -> None:
    from liveshape.cli import _parser

    readme = (ROOT / "README.md").read_text()
    known = set(re.findall(r"^\s{4}(\w+)\s{2,}", _parser().format_help(), re.MULTILINE))
    used = set(re.findall(r"^(?:\$ )?liveshape (\w+)", readme, re.MULTILINE))
    assert used
    assert used <= known, f"{used - known} are in README.md, not in the command"
    for example in re.findall(r"examples/[\w/]+\.py", readme):
        assert (ROOT / example).exists(), example


def test_the_page_of_models_is_that_of_what_was_measured() -> None:
    import json

    from bench.models import EXPORTS, MEASURED, PAGE, RECIPES, ROUNDED, TEXTS, page
    from liveshape.graph.activation_kinds import ACTIVATIONS

    measured = json.loads(MEASURED.read_text())
    assert PAGE.read_text() == page(measured)
    assert [(row["model"], row["quant"]) for row in measured["exports"]] == EXPORTS
    found = {(row["text"], row["quant"]): row["perplexity"] for row in measured["perplexities"]}
    assert list(found) == [(text, mode) for text in TEXTS for mode in RECIPES]
    assert all(found[text, "auto"] <= 1.05 * found[text, "none"] for text in TEXTS)
    rounded: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in ACTIVATIONS}
    for row in measured["activations"]:
        rounded[row["activations"]].append((row["model"], row["quant"], row["text"]))
    assert rounded["float32"] == rounded["int8"] == [*ROUNDED]
    assert rounded["float16"] in ([], [*ROUNDED]), "measured where there are matrix units"


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    import json

    found, networks = (
        json.loads((ROOT / "docs" / "performance" / f"h200-{name}.json").read_text()) for name in ("1b", "networks")
    )
    readme = (ROOT / "README.md").read_text()
    own = [f"liveshape {activations}" for activations in ("float32", "float16", "int8")]
    sides = (*own, "llama.cpp Vulkan", "llama.cpp Vulkan, no tensor cores")
    works = {
        "decode at 512 tokens of context": "tg128 @ d512",
        "prefill of 512 tokens": "pp512",
        "prefill of 4,096 tokens": "pp4096",
        "prefill of 8,192 tokens": "pp8192",
    }
    for words, test in works.items():
        cells = " | ".join(f"{found['speeds'][side][test][0]:,.0f}" for side in sides)
        assert f"| {words} | {cells} |" in readme
    for words, name in {"MobileNetV2": "mobilenet_v2", "ResNet18": "resnet18", "U-Net": "unet"}.items():
        shown = ("liveshape", "liveshape, float16", "torch CUDA", "torch CUDA, TF32")
        cells = " | ".join(f"{networks['vision'][name][side][0]:.2f}" for side in shown)
        assert f"| {words} | {cells} |" in readme


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    rooms = runpy.run_path(str(ROOT / "scripts" / "rooms.py"))
    assert rooms["drawn"]() == (ROOT / "docs" / "rooms.svg").read_text(), "python scripts/rooms.py draws it anew"


def test_the_picture_of_a_walk_is_that_of_the_planner() -> None:
    walk = runpy.run_path(str(ROOT / "scripts" / "walk.py"))
    assert walk["drawn"]() == (ROOT / "docs" / "walk.svg").read_text(), "python scripts/walk.py draws it anew"
