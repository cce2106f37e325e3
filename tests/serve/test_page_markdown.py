"""What a model writes, as the chat page shows it: Markdown, formulas and code."""

# ruff: noqa: RUF001 (letters of formulas)
from __future__ import annotations

import re
import threading
from html import unescape

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.serve.chatting import answers, ask, begin, show
from tests.serve.stub_api import StubApi

pytestmark = pytest.mark.slow


MARKDOWN = {
    "*a* **b** ***c*** ~~d~~ `e`": "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <del>d</del> "
    "<code>e</code></p>",
    "snake_case_name 2 * 3 * 4 \\*x\\* **open": "<p>snake_case_name 2 * 3 * 4 *x* **open</p>",
    "**a *b* c**, _d_.": "<p><strong>a <em>b</em> c</strong>, <em>d</em>.</p>",
    "``a ` b``": "<p><code>a ` b</code></p>",
    "line\nnext": "<p>line<br>next</p>",
    "# A\n## B": "<h2>A</h2><h3>B</h3>",
    "1. a\n2. b\n   - c\n   - d\n3. e": "<ol><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li><li><p>d</p></li></ul>"
    "</li><li><p>e</p></li></ol>",
    "text\n- a\n- b\n\nafter": "<p>text</p><ul><li><p>a</p></li><li><p>b</p></li></ul><p>after</p>",
    "3. c\n\n4. d": '<ol class="loose" start="3"><li><p>c</p></li><li><p>d</p></li></ol>',
    "> a\n> > b\n\nc": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "(see https://example.org/a_(b)).": '<p>(see <a href="https://example.org/a_(b)" target="_blank" '
    'rel="noopener noreferrer">https://example.org/a_(b)</a>).</p>',
    "[a [b] *c*](http://x.org)": '<p><a href="http://x.org" target="_blank" rel="noopener noreferrer">a [b] '
    "<em>c</em></a></p>",
    "a | b\n--- | ---:\n`x \\| y` | 2\n3": '<table><thead><tr><th>a</th><th class="right">b</th></tr></thead><tbody>'
    '<tr><td><code>x | y</code></td><td class="right">2</td></tr></tbody></table><p>3</p>',
    "1. a\n\n   ```js\n   x\n     y\n   ```\n2. b": "<ol><li><p>a</p><pre>x\n  y</pre></li><li><p>b</p></li></ol>",
    "```\nnot *closed*": "<pre>not *closed*</pre>",
}


def markup(prose: Locator) -> str:
    """What is shown of a text, without the frames of code and tables."""
    html = prose.inner_html()
    html = re.sub(r"<figure.*?<pre[^>]*><code>(.*?)</code></pre></figure>", r"<pre>\1</pre>", html, flags=re.DOTALL)
    html = re.sub(r'<div class="sideways".*?>(.*?)</div>', r"\1", html)
    return html.replace(' class=""', "")


def test_markdown(chat: Page) -> None:
    assert dict(zip(MARKDOWN, map(markup, show(chat, *MARKDOWN)), strict=True)) == MARKDOWN


def test_markdown_of_every_beginning_of_a_text(chat: Page, api: StubApi) -> None:
    """Written a character at a time, which ends in what the whole text gives."""
    text = "\n\n".join((*MARKDOWN, "$$\nx^2\n$$", r"\(y\) and \[z\]", "```python\nprint('a')  # b\n```"))
    api.script(*text)
    ask(chat, "Hello")
    html = answers(chat).locator("> .prose").inner_html()
    chat.reload()  # which shows the text at once
    assert answers(chat).locator("> .prose").inner_html() == html


X_SQUARED = "<msup><mi>x</mi><mn>2</mn></msup>"
FORMULAS = {
    r"\(x^2\,dx\)": f'<mrow>{X_SQUARED}<mspace width="0.167em"></mspace><mi>d</mi><mi>x</mi></mrow>',
    "$x^2$": X_SQUARED,
    "$$x^2$$": X_SQUARED,
    r"\[ x^2 \]": X_SQUARED,
    "$$\n\nx^2$$": None,
    r"$\frac{1}{2}$": "<mfrac><mn>1</mn><mn>2</mn></mfrac>",
    r"$\sqrt[3]{x}$": "<mroot><mi>x</mi><mn>3</mn></mroot>",
    r"$\alpha_i' \le \Omega$": '<mrow><msubsup><mi>α</mi><mi>i</mi><mo lspace="0" rspace="0">′</mo></msubsup>'
    '<mo stretchy="false">≤</mo><mi mathvariant="normal">Ω</mi></mrow>',
    r"$\sum_{i=1}^n i$": '<mrow><munderover><mo movablelimits="true">∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow>'
    "<mi>n</mi></munderover><mi>i</mi></mrow>",
    r"$\begin{matrix} a & b \\ c \end{matrix}$": "<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd>"
    "</mtr><mtr><mtd><mi>c</mi></mtd></mtr></mtable>",
    r"$\mathbb{R} \text{ if } 1{,}000.5\%$": '<mrow><mi mathvariant="normal">ℝ</mi><mtext>&nbsp;if&nbsp;</mtext>'
    '<mn>1,000.5</mn><mi mathvariant="normal">%</mi></mrow>',
    # What is no formula, and what is not known, stays as it was written.
    "$5 and $6, US$7, 8$": None,
    "$HOME/$USER and `$x$`": None,
    r"\$x\$ (a) [b]": None,
    r"$\unknown{x}$": None,
    r"$\frac{1}$": None,
    "$" + "{" * 50 + "}" * 50 + "$": None,
    r"$x^2^3$ $}$ $\left( x$": None,
}


def test_formulas(chat: Page) -> None:
    found = {}
    for text, prose in zip(FORMULAS, show(chat, *FORMULAS), strict=True):
        drawn = re.findall(r"<semantics>(.*)<annotation.*?>(.*?)</annotation>", prose.inner_html(), re.DOTALL)
        found[text] = drawn[0][0] if drawn else None
        if drawn:
            assert unescape(drawn[0][1]) in text  # as it was written, to be copied
        elif "`" not in text:
            assert prose.inner_text().replace("\n", "") == text.replace(r"\$", "$").replace("\n", "")
    assert found == FORMULAS


CODE = {
    "python": (
        '@cache\ndef grow(tree, by=2.5):  # slow\n    return f"{tree}" + """long\nstring"""',
        {
            "attribute": ["@cache"],
            "comment": ["# slow"],
            "function": ["grow"],
            "keyword": ["def", "return"],
            "number": ["2.5"],
            "string": ['f"{tree}"', '"""long\nstring"""'],
        },
    ),
    "js": (
        "const a = `x${1}\n`; // it's\nnew Map(/* b\n */ 0x1f)",
        {
            "comment": ["// it's", "/* b\n */"],
            "function": ["Map"],
            "keyword": ["const", "new"],
            "number": ["0x1f"],
            "string": ["`x${1}\n`"],
        },
    ),
    "rust": (
        "fn f<'a>(x: &'a str) { println!('b') }",
        {"attribute": ["'a", "'a"], "function": ["println"], "keyword": ["fn", "str"], "string": ["'b'"]},
    ),
    "json": ('{"a": [1, "b", null]}', {"attribute": ['"a"'], "keyword": ["null"], "number": ["1"], "string": ['"b"']}),
    "sql": ("SELECT 'it''s' -- all", {"comment": ["-- all"], "keyword": ["SELECT"], "string": ["'it'", "'s'"]}),
    "html": (
        '<a href="x">it\'s</a><!-- b -->',
        {"attribute": ["href"], "comment": ["<!-- b -->"], "keyword": ["<a", ">", "</a", ">"], "string": ['"x"']},
    ),
    "diff": ("@@ 1\n+a\n-b\n c", {"deleted": ["-b"], "inserted": ["+a"], "keyword": ["@@ 1"]}),
    "nothing-known": ("def x # y", {}),
}


def test_code_is_coloured(chat: Page) -> None:
    shown = show(chat, *(f"```{language}\n{code}\n```" for language, (code, _) in CODE.items()))
    for (language, (code, wanted)), prose in zip(CODE.items(), shown, strict=True):
        found: dict[str, list[str]] = {}
        for span in prose.locator("pre span").all():
            found.setdefault(str(span.get_attribute("class")), []).append(str(span.text_content()))
        assert prose.locator("pre").text_content() == code
        assert found == wanted, language


PIECES = (
    *"* **a␣ _a [ ]( [a]( ` `␣``␣ >␣ -␣ |␣ |- ~ # ␣ \\ http://( <http:// 1.␣ $ $a␣ $$ $$␣a⏎ \\(".split(),
    *"\\[ \\[␣a⏎ \\\\[⏎ $\\frac{ ${ $x_ $\\left( $\\begin{a} ![ [a](http://x␣ ( a. &amp; [x][ <!--".split(),
)
LANGUAGES = ("python", "js", "c", "rust", "html", "toml", "yaml", "sql", "bash", "json", "css", "diff", "tex")
CODES = ("'", '"', '"""', "a ", "a(", "/*", "<!--", "@", "0x1", "\\", " ", "aaaa", "${", "#", "--", "'a", "\n+", "rb")


def test_no_text_stops_the_page(chat: Page) -> None:
    """What costs more than the text is long, or nests as deep, would keep it from ending at this length."""
    pieces = [piece.replace("␣", " ").replace("⏎", "\n") for piece in PIECES]
    show(chat, *("ok\n\n" + piece * (40_000 // len(piece)) + "\\]" for piece in pieces))


def test_no_code_stops_the_page(chat: Page) -> None:
    texts = [code * (99_000 // len(code)) for code in CODES]
    show(chat, *("\n\n".join(f"```{language}\n{text[:20_000]}" for text in texts) for language in LANGUAGES))


@pytest.mark.parametrize("text", ["x" * 1_000_000, "[" * 500_000 + "]" * 500_000, "$ a" * 330_000])
def test_a_megabyte_is_shown(chat: Page, text: str) -> None:
    show(chat, text, f"```js\n{text}\n```")


def test_more_lines_than_a_call_takes_arguments(chat: Page) -> None:
    (prose,) = show(chat, "a\n" * 130_000)
    assert prose.locator("br").count() == 130_000 - 1


def test_code_is_copied_as_it_is(chat: Page, context: BrowserContext, api: StubApi) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    api.script("```python\nif a < b:\n    print('&amp;')\n```")
    ask(chat, "Hello")
    answers(chat).locator("figure").get_by_role("button", name="Copy").click()
    expect(answers(chat).get_by_role("button", name="Copied")).to_be_visible()
    assert chat.evaluate("navigator.clipboard.readText()") == "if a < b:\n    print('&amp;')"


def test_what_did_not_change_keeps_its_elements_while_an_answer_grows(chat: Page, api: StubApi) -> None:
    """So that a selection stays, and an answer costs what its last block costs."""
    gate = threading.Event()
    api.script("First.\n\n```\ncode\n", gate, "more\n```\n\nLast.")
    begin(chat, "Hello")
    expect(answers(chat).locator("pre")).to_be_visible()
    chat.evaluate("window.had = [...document.querySelectorAll('.answer > .prose > *')]")
    gate.set()
    expect(answers(chat)).to_contain_text("Last.")
    expect(answers(chat).locator("pre")).to_have_text("code\nmore")
    assert chat.evaluate("window.had.length === 2 && window.had.every((each) => each.isConnected)")
