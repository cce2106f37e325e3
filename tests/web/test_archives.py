"""What a page's archives leave out of files changes nothing that the package reads of them."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from liveshape.kernels import kernel, preprocessor

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "liveshape" / "kernels" / "wgsl"


@pytest.fixture(scope="module")
def archives() -> Any:
    spec = importlib.util.spec_from_file_location("archives", ROOT / "web" / "archives.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def declared(texts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """What each kernel declares with each of its choices, and its code without blanks."""
    files = {name: preprocessor.parse(name, text) for name, text in texts.items()}
    monkeypatch.setattr(preprocessor, "read", files.__getitem__)
    found = {}
    for name, file in files.items():
        if "fn main" not in texts[name] and "#include" not in texts[name]:
            continue  # of other files
        choices = preprocessor.choose(name, file, {}).choices
        for values in list(product(*choices.values()))[:4]:
            try:
                row = kernel._declared(name, file, dict(zip(choices, values, strict=True)))
            except Exception as error:  # a part of kernels, which is none by itself
                found[name, values] = type(error).__name__
                continue
            constants = dict.fromkeys(row["constants"], "2u") | {preprocessor.SUBGROUP: "32"}
            code = "".join(preprocessor.resolve(row.pop("text"), constants).split())
            facts = {key: value for key, value in row.items() if key not in ("flatten", "layout")}
            found[name, values] = facts, row["layout"].format, code
    return found


def test_kernels_declare_the_same_without_comments(archives: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {str(path.relative_to(KERNELS))[:-5]: path.read_text() for path in KERNELS.rglob("*.wgsl")}
    bare = {name: archives.bare_kernel(text) for name, text in texts.items()}
    wanted = declared(texts, monkeypatch)
    assert sum(isinstance(row, tuple) for row in wanted.values()) > 200
    assert declared(bare, monkeypatch) == wanted
    assert sum(map(len, bare.values())) < 0.9 * sum(map(len, texts.values()))


@pytest.mark.parametrize(
    ("text", "everywhere", "wanted"),
    [
        ("import a.b\nfrom c import d", False, {"a.b", "c", "c.d"}),
        ("from . import near\nfrom ..up import e", False, {"p.q", "p.q.near", "p.up", "p.up.e"}),
        ("def f():\n    import inside", False, set()),
        ("def f():\n    import inside", True, {"inside"}),
        ("try:\n    import extra\nexcept ImportError:\n    extra = None", False, set()),
        ("try:\n    import quick\nexcept ImportError:\n    import slow", False, {"quick"}),
        ("if TYPE_CHECKING:\n    import types\nelse:\n    import other", True, {"other"}),
        ("if sys.platform == 'win32':\n    import windows", False, set()),
    ],
)
def test_import_statements(archives: Any, text: str, everywhere: bool, wanted: set[str]) -> None:
    assert archives.imported(text.encode(), "p/q/module.py", everywhere=everywhere) == wanted


def test_a_module_that_is_needed_cannot_be_left_out(archives: Any) -> None:
    package = {
        "liveshape_page.py": b"def call():\n    import liveshape.serve",
        "liveshape/__init__.py": b"",
        "liveshape/serve/__init__.py": b"",
    }
    assert archives.reached(package, {"json/__init__.py": b""}) == {"liveshape_page.py"}
    package["liveshape_page.py"] = b"import liveshape.serve"
    with pytest.raises(SystemExit, match=r"liveshape_page\.py needs liveshape/serve"):
        archives.reached(package, {})
