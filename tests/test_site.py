"""The pages as a site: every page can be found, every link leads somewhere, on GitHub, on the site and on PyPI."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
HOME = re.compile(
    r"https://(?:github\.com/liveshape/liveshape/blob|raw\.githubusercontent\.com/liveshape/liveshape)/main/"
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_DEFINED = re.compile(r"^\[([^\]]+)\]: (\S+)$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


def prose(page: Path) -> str:
    """A page without what stands between fences."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[tuple[bool, str]]:
    """The links of a page, and whether each is a picture."""
    text = _CODE.sub("", prose(page))
    defined = dict(_DEFINED.findall(text))
    body = _DEFINED.sub("", text)
    found = [(mark == "!", target) for mark, target in _LINK.findall(body)]
    for mark, words, name in re.findall(r"(!?)\[([^\[\]]+)\](?:\[([^\]]+)\])?(?![(\w])", body):
        target = name or words
        if name or target in defined or (ROOT / target).exists():
            assert target in defined, f"{page.name}: [{target}] is not defined"
            found.append((mark == "!", defined[target]))
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{slug}-{sum(each.startswith(slug) for each in found)}" if slug in found else slug)
    return found


def slug_of_the_site(anchor: str) -> str:
    """What Python-Markdown makes of the same words: runs of hyphens are one."""
    return re.sub(r"-+", "-", anchor)


def test_every_page_is_in_the_navigation() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert len(listed) == len(set(listed)), "a page is listed twice"
    assert set(listed) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_the_index_names_every_page() -> None:
    named = {target.partition("#")[0] for _, target in links(DOCS / "index.md")}
    assert named >= {page.name for page in DOCS.glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for _, target in links(page):
        if HOME.match(target):
            path, _, anchor = HOME.sub("", target).partition("#")
            file = ROOT / path
        elif re.match(r"[a-z]+:", target):
            continue  # another site
        else:
            path, _, anchor = unquote(target).partition("#")
            file = page.parent / path if path else page
            assert page.name == "README.md" or file.resolve().is_relative_to(DOCS), f"{target} is not on the site"
        assert file.exists(), f"{page.name}: {target} is not there"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {file.name} has no heading for #{anchor}"
            assert anchor == slug_of_the_site(anchor), f"{page.name}: #{anchor} is another anchor on the site"


def test_the_readme_works_on_pypi() -> None:
    """There a relative link leads nowhere, and a picture must be a file, not the page of one."""
    for picture, target in links(ROOT / "README.md"):
        assert target.startswith("https://"), target
        if HOME.match(target):
            assert target.startswith("https://raw.") is picture, target


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "api.md").read_text()
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(shown) == len(set(shown))
    names = {name.rpartition(".")[2] for name in shown}
    for module in ("liveshape", "liveshape.runtime", "liveshape.llm"):
        path = ROOT / module.replace(".", "/")
        source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        (public,) = re.findall(r"^__all__ = (\[.*?\])", source, re.MULTILINE | re.DOTALL)
        known = ast.literal_eval(public)
        for name in known:
            assert name in names or f"`{name}`" in text, f"docs/api.md lacks {module}.{name}"
        listed = {name for name in shown if name.rpartition(".")[0] == module}
        assert listed <= {f"{module}.{name}" for name in known}


def test_lists_and_doctests_are_shown_as_on_github() -> None:
    converted = runpy.run_path(str(ROOT / "scripts" / "site_markdown.py"))["converted"]
    assert list(converted(["Two:", "- a", "  - b", "    c", "", "Text"])) == [
        "Two:", "", "- a", "    - b", "        c", "", "Text"
    ]  # fmt: skip
    assert list(converted(["```sh", "- a", "  - b", "```"])) == ["```sh", "- a", "  - b", "```"]
    assert list(converted([">>> 1 + 1", "2", "", "Text"])) == ["```pycon", ">>> 1 + 1", "2", "```", "", "Text"]
    assert list(converted(["    code", "- no list"])) == ["    code", "", "- no list"]
