"""The chat page in a browser, against an API that answers what each test scripts."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.serve.stub_api import MODEL, Hangup, Reasoning, Refusal, StubApi

pytestmark = pytest.mark.slow

LONG = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(80))
WIDE = (
    f"```text\n{'wide ' * 80}\n```\n\n|{' head |' * 12}\n|{' --- |' * 12}\n|{' cell_of_a_table |' * 12}\n\n{'x' * 400}"
)


def box(chat: Page) -> Locator:
    return chat.get_by_role("textbox", name="Message", exact=True)


def answers(chat: Page) -> Locator:
    return chat.get_by_role("article", name="Answer")


def press(chat: Page, name: str) -> None:
    chat.get_by_role("button", name=name, exact=True).click()


def entry(chat: Page, title: str) -> Locator:
    return chat.get_by_role("navigation").get_by_role("button", name=title, exact=True)


def begin(chat: Page, text: str) -> None:
    """Sends a message."""
    box(chat).fill(text)
    box(chat).press("Enter")


def ask(chat: Page, text: str) -> None:
    """Sends a message and waits for the end of its answer."""
    begin(chat, text)
    expect(answers(chat).last).to_have_attribute("aria-busy", "false")


def said(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in body["messages"]]


def test_an_answer_appears_as_it_is_written(chat: Page, api: StubApi) -> None:
    gate = threading.Event()
    api.script("One ", "**two** ", gate, "three.")
    begin(chat, "Count")
    expect(answers(chat)).to_contain_text("One two")
    expect(chat.get_by_role("button", name="Stop")).to_be_visible()
    assert "three" not in answers(chat).inner_text()
    gate.set()
    expect(answers(chat)).to_contain_text("One two three.")
    expect(answers(chat)).to_contain_text("3 tokens")
    expect(answers(chat)).to_contain_text("tokens/s")
    expect(answers(chat)).to_contain_text("prompt 1,234")
    expect(chat.get_by_role("button", name="Send")).to_be_visible()
    (body,) = api.bodies
    assert said(body) == [("user", "Count")]
    assert body["model"] == MODEL
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body.keys() == {"model", "messages", "stream", "stream_options"}  # nothing that nobody chose


@pytest.mark.parametrize("by_key", [True, False])
def test_stop_ends_the_request_and_keeps_what_was_written(chat: Page, api: StubApi, by_key: bool) -> None:
    api.script("Some words", threading.Event())
    begin(chat, "Talk")
    expect(answers(chat)).to_contain_text("Some words")
    if by_key:
        chat.keyboard.press("Escape")
    else:
        press(chat, "Stop")
    assert api.gone.wait(30), "the server still writes to a client that stopped"
    expect(answers(chat)).to_contain_text("stopped")
    expect(box(chat)).to_be_focused()
    ask(chat, "Go on")
    assert said(api.bodies[1]) == [("user", "Talk"), ("assistant", "Some words"), ("user", "Go on")]


def test_another_answer_is_a_version_beside_the_first(chat: Page, api: StubApi) -> None:
    api.script("First.")
    api.script("Second.")
    ask(chat, "Question")
    press(chat, "Regenerate")
    expect(answers(chat)).to_contain_text("Second.")
    expect(answers(chat)).to_contain_text("2/2")
    assert api.bodies[0] == api.bodies[1]
    press(chat, "Previous version")
    expect(answers(chat)).to_contain_text("First.")
    ask(chat, "More")
    assert said(api.bodies[2]) == [("user", "Question"), ("assistant", "First."), ("user", "More")]


def test_an_edited_message_branches_the_conversation(chat: Page, api: StubApi) -> None:
    for text in ("A1", "A2", "B1"):
        api.script(text)
    ask(chat, "Q1")
    ask(chat, "Q2")
    first = chat.get_by_role("article", name="You").first
    first.hover()
    first.get_by_role("button", name="Edit").click()
    editor = chat.get_by_role("textbox", name="Edit the message")
    expect(editor).to_be_focused()
    expect(editor).to_have_value("Q1")
    editor.fill("Q1, but other")
    editor.press("Enter")
    expect(answers(chat)).to_have_count(1)
    expect(answers(chat)).to_contain_text("B1")
    assert said(api.bodies[2]) == [("user", "Q1, but other")]
    press(chat, "Previous version")
    expect(answers(chat)).to_have_count(2)
    expect(answers(chat).last).to_contain_text("A2")


def test_an_edit_can_be_given_up(chat: Page, api: StubApi) -> None:
    ask(chat, "Question")
    box(chat).press("ArrowUp")
    editor = chat.get_by_role("textbox", name="Edit the message")
    editor.fill("Something else")
    editor.press("Escape")
    expect(chat.get_by_role("article", name="You")).to_contain_text("Question")
    expect(editor).to_have_count(0)
    assert len(api.bodies) == 1


def test_settings_are_sent_and_begin_the_next_conversation(chat: Page, api: StubApi) -> None:
    wanted = {"temperature": 0.25, "top_p": 0.9, "max_tokens": 64, "seed": 7}
    press(chat, "Settings")
    chat.get_by_label("System prompt").fill("Be brief.")
    for name, value in wanted.items():
        chat.locator(f"[name={name}]").fill(str(value))
    press(chat, "Done")
    ask(chat, "Hello")
    chat.reload()
    press(chat, "New")
    ask(chat, "Hello again")
    for body, text in zip(api.bodies, ("Hello", "Hello again"), strict=True):
        assert said(body) == [("system", "Be brief."), ("user", text)]
        assert {name: body[name] for name in wanted} == wanted
    press(chat, "Settings")
    press(chat, "Clear")
    press(chat, "Done")
    ask(chat, "Once more")
    assert api.bodies[2].keys() == {"model", "messages", "stream", "stream_options"}
    assert said(api.bodies[2])[0] == ("user", "Hello again")


def test_a_setting_out_of_range_is_not_taken(chat: Page, api: StubApi) -> None:
    press(chat, "Settings")
    chat.get_by_label("Top p").fill("1.5")
    press(chat, "Done")
    expect(chat.get_by_role("dialog", name="Settings")).to_be_visible()
    chat.keyboard.press("Escape")
    ask(chat, "Hello")
    assert "top_p" not in api.bodies[0]


def test_an_answer_that_reached_its_limit_says_so(chat: Page, api: StubApi) -> None:
    api.finish = "length"
    ask(chat, "Hello")
    expect(answers(chat)).to_contain_text("ended at the limit of tokens")


def test_the_model_can_be_chosen_where_there_are_several(chat: Page, api: StubApi) -> None:
    expect(chat.get_by_role("combobox", name="Model")).to_be_hidden()
    api.models = ["small", "large"]
    chat.reload()
    chat.get_by_role("combobox", name="Model").select_option("large")
    ask(chat, "Hello")
    assert api.bodies[0]["model"] == "large"


def test_conversations_survive_a_reload(chat: Page, api: StubApi) -> None:
    api.script("The **first** answer.")
    ask(chat, "Apples")
    press(chat, "New")
    ask(chat, "Pears")
    chat.reload()
    expect(answers(chat)).to_contain_text("Fine.")
    expect(answers(chat)).to_contain_text("1 token")
    entry(chat, "Apples").click()
    expect(answers(chat).locator("strong")).to_have_text("first")
    expect(chat.get_by_role("heading", name="Apples")).to_be_visible()
    ask(chat, "More")
    assert said(api.bodies[2])[1] == ("assistant", "The **first** answer.")


def test_a_reload_keeps_what_was_written_by_then(chat: Page, api: StubApi) -> None:
    api.script("Half of it", threading.Event())
    begin(chat, "Talk")
    expect(answers(chat)).to_contain_text("Half of it")
    chat.reload()
    expect(answers(chat)).to_contain_text("Half of it")
    expect(answers(chat)).to_contain_text("stopped")
    expect(chat.get_by_role("button", name="Regenerate")).to_be_enabled()


def test_conversations_are_renamed_found_and_deleted(chat: Page, api: StubApi) -> None:
    api.script("They grow on trees.")
    ask(chat, "Apples")
    press(chat, "New")
    ask(chat, "Pears")
    entry(chat, "Pears").dblclick()
    title = chat.get_by_role("textbox", name="Title")
    title.fill("Fruit")
    title.press("Enter")
    expect(chat.get_by_role("heading", name="Fruit")).to_be_visible()
    chat.get_by_role("searchbox").fill("TREES grow")  # what was answered counts
    expect(entry(chat, "Apples")).to_be_visible()
    expect(entry(chat, "Fruit")).to_have_count(0)
    chat.get_by_role("searchbox").fill("nowhere")
    expect(chat.get_by_text("No conversation has these words.")).to_be_visible()
    chat.get_by_role("searchbox").fill("")
    press(chat, "Delete Fruit")
    expect(entry(chat, "Fruit")).to_have_count(0)
    expect(answers(chat)).to_have_count(0)
    press(chat, "Undo")
    expect(entry(chat, "Fruit")).to_be_visible()
    press(chat, "Delete Fruit")
    chat.reload()
    expect(entry(chat, "Apples")).to_be_visible()
    expect(entry(chat, "Fruit")).to_have_count(0)


def test_an_answer_goes_on_while_another_conversation_is_shown(chat: Page, api: StubApi) -> None:
    gate = threading.Event()
    api.script("Begun, ", gate, "and ended.")
    begin(chat, "Slow")
    expect(answers(chat)).to_contain_text("Begun")
    press(chat, "New")
    ask(chat, "Quick")
    expect(answers(chat)).to_contain_text("Fine.")
    gate.set()
    chat.get_by_role("navigation").get_by_role("button", name=re.compile("^Slow")).click()
    expect(answers(chat)).to_contain_text("Begun, and ended.")


def test_a_conversation_changed_in_another_tab_is_shown_as_it_is(
    chat: Page, context: BrowserContext, api: StubApi
) -> None:
    ask(chat, "Apples")
    other = context.new_page()
    other.goto(api.address)
    entry(other, "Apples").click()
    ask(other, "Pears")
    expect(answers(chat)).to_have_count(2)
    press(other, "Delete Apples")
    expect(entry(chat, "Apples")).to_have_count(0)
    expect(answers(chat)).to_have_count(0)


def test_what_is_exported_can_be_imported(chat: Page, api: StubApi, tmp_path: Path) -> None:
    api.script(Reasoning("Because."), "Yes.")
    ask(chat, "Apples")
    press(chat, "Regenerate")
    expect(answers(chat)).to_contain_text("2/2")
    with chat.expect_download() as download:
        press(chat, "Export")
    path = tmp_path / "conversations.json"
    download.value.save_as(path)
    assert [each["title"] for each in json.loads(path.read_text())["conversations"]] == ["Apples"]
    chat.evaluate("localStorage.clear()")
    chat.reload()
    expect(entry(chat, "Apples")).to_have_count(0)
    chat.get_by_label("File to import").set_input_files(path)
    expect(chat.get_by_text("1 conversation added.")).to_be_visible()
    entry(chat, "Apples").click()
    press(chat, "Previous version")
    expect(answers(chat)).to_contain_text("Yes.")
    expect(answers(chat)).to_contain_text("Reasoned")
    chat.get_by_label("File to import").set_input_files(path)
    expect(chat.get_by_text("0 conversations added.")).to_be_visible()


MESSAGE = {"id": "m", "parent": None, "role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    "raw",
    [
        "rubbish",
        "null",
        "{}",
        json.dumps({"format": "liveshape conversations", "conversations": [{"id": "a b", "messages": []}]}),
        json.dumps({"format": "liveshape conversations", "conversations": [{"id": "a", "messages": [{}]}]}),
        json.dumps(
            {
                "format": "liveshape conversations",
                "conversations": [{"id": "a", "messages": [MESSAGE | {"parent": "m"}]}],
            }
        ),
    ],
    ids=["rubbish", "null", "empty", "id", "message", "circle"],
)
def test_a_file_of_something_else_is_refused(chat: Page, tmp_path: Path, raw: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(raw)
    chat.get_by_label("File to import").set_input_files(path)
    expect(chat.get_by_text("other.json is not a file that Export of this page wrote.")).to_be_visible()
    assert chat.evaluate("Object.keys(localStorage).length") == 0


HOSTILE = """<img src=x onerror="window.hacked = 1"> <script>window.hacked = 1</script>

[a](javascript:window.hacked=1) [b](data:text/html,<script>window.hacked=1</script>)
[c]( JaVaScRiPt:alert(1)) <b>bold</b>

![picture](https://example.org/picture.png) [good](https://example.org/ok "title") https://example.org/bare.

| <i>head</i> | x |
| --- | --- |
| <svg onload="window.hacked = 1"> | `<u>` |

```"><img src=x onerror=window.hacked=1>
</code></pre><img src=x onerror="window.hacked = 1">
```
"""


def test_what_a_model_writes_stays_text(chat: Page, api: StubApi) -> None:
    api.script(Reasoning(HOSTILE), HOSTILE)
    ask(chat, '<img src=x onerror="window.hacked = 1">')
    thread = chat.get_by_role("log")
    assert thread.locator("img, script, svg[onload], b, i, u, iframe").count() == 0
    assert chat.evaluate("window.hacked") is None
    prose = answers(chat).locator("> .prose")
    expect(prose).to_contain_text('<img src=x onerror="window.hacked = 1"> <script>window.hacked = 1</script>')
    expect(prose.locator("pre")).to_contain_text('</code></pre><img src=x onerror="window.hacked = 1">')
    expect(chat.get_by_role("heading", level=1)).to_have_text('<img src=x onerror="window.hacked = 1">')
    links = prose.get_by_role("link")
    assert [each.get_attribute("href") for each in links.all()] == [
        "https://example.org/picture.png",
        "https://example.org/ok",
        "https://example.org/bare",
    ]
    assert {each.get_attribute("rel") for each in links.all()} == {"noopener noreferrer"}


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


@pytest.mark.parametrize("text", MARKDOWN)
def test_markdown(chat: Page, api: StubApi, text: str) -> None:
    """Written a character at a time, so that every beginning of it was shown, too."""
    api.script(*text)
    ask(chat, "Hello")
    html = answers(chat).locator("> .prose").inner_html()
    html = re.sub(r"<figure.*?<pre[^>]*><code>(.*?)</code></pre></figure>", r"<pre>\1</pre>", html, flags=re.DOTALL)
    html = re.sub(r'<div class="sideways".*?>(.*?)</div>', r"\1", html)
    assert html.replace(' class=""', "") == MARKDOWN[text]


@pytest.mark.parametrize(
    "piece",
    [
        "*",
        "**a ",
        "_a",
        "[",
        "](",
        "[a](",
        "`",
        "` `` ",
        "> ",
        "- ",
        "| ",
        "|-",
        "~",
        "#",
        " ",
        "\\",
        "http://(",
        "<http://",
        "1. ",
    ],
)
@pytest.mark.parametrize("end", ["", "x"])
def test_no_text_stops_the_page(chat: Page, api: StubApi, piece: str, end: str) -> None:
    """What costs more than the text is long, or nests as deep, would keep it from ending at this length."""
    api.script("ok\n\n" + piece * (60_000 // len(piece)) + end)
    ask(chat, "Hello")
    expect(answers(chat)).to_contain_text("1 token")


def test_code_is_copied_as_it_is(chat: Page, context: BrowserContext, api: StubApi) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    api.script("```python\nif a < b:\n    print('&amp;')\n```")
    ask(chat, "Hello")
    answers(chat).locator("figure").get_by_role("button", name="Copy").click()
    expect(answers(chat).get_by_role("button", name="Copied")).to_be_visible()
    assert chat.evaluate("navigator.clipboard.readText()") == "if a < b:\n    print('&amp;')"


def test_reasoning_is_shown_apart_and_not_sent_back(chat: Page, api: StubApi) -> None:
    gate = threading.Event()
    api.script(Reasoning("Let me "), Reasoning("think."), gate, "Done.")
    begin(chat, "Hello")
    details = answers(chat).locator("details")
    expect(details).to_have_attribute("open", "")
    expect(details).to_contain_text("Let me think.")
    gate.set()
    expect(answers(chat)).to_contain_text("Done.")
    expect(details).not_to_have_attribute("open", "")
    details.locator("summary").click()
    expect(details.get_by_text("Let me think.")).to_be_visible()
    ask(chat, "Next")
    assert said(api.bodies[1]) == [("user", "Hello"), ("assistant", "Done."), ("user", "Next")]


def test_an_error_is_shown_and_can_be_tried_again(chat: Page, api: StubApi) -> None:
    api.script(Refusal(400, "max_tokens is 0, at least 1", param="max_tokens"))
    api.script(Refusal(429, "the queue is full", "rate_limit_error", headers={"Retry-After": "7"}))
    begin(chat, "Hello")
    alert = chat.get_by_role("alert")
    expect(alert).to_contain_text("max_tokens is 0, at least 1")
    expect(alert).to_contain_text("400 · invalid_request_error · max_tokens")
    press(chat, "Retry")
    expect(alert).to_contain_text("the queue is full")
    expect(alert).to_contain_text("asks to wait 7 s")
    chat.reload()
    expect(alert).to_contain_text("the queue is full")
    press(chat, "Retry")
    expect(answers(chat)).to_contain_text("Fine.")
    expect(alert).to_have_count(0)
    expect(chat.get_by_text("2/2")).to_have_count(0)  # a failure without a word is no version
    assert [said(body) for body in api.bodies] == [[("user", "Hello")]] * 3


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (Refusal(500, "the device was lost", "server_error"), "the device was lost"),
        (Hangup(), "The connection ended before the answer did."),
    ],
)
def test_an_answer_cut_short_is_kept_with_the_reason(
    chat: Page, api: StubApi, end: Refusal | Hangup, words: str
) -> None:
    api.script("Half of ", end)
    begin(chat, "Hello")
    expect(chat.get_by_role("alert")).to_contain_text(words)
    expect(answers(chat)).to_contain_text("Half of")
    press(chat, "Retry")
    expect(answers(chat)).to_contain_text("Fine.")
    expect(answers(chat)).to_contain_text("2/2")


def test_a_server_that_is_gone_is_said_to_be(chat: Page, api: StubApi) -> None:
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    api.close()
    begin(chat, "Hello")
    expect(chat.get_by_role("alert")).to_contain_text("The server did not answer.")


def test_the_page_waits_for_a_server_that_loads(chat: Page, api: StubApi) -> None:
    for _ in range(2):
        api.refused_models.append(
            Refusal(503, "the model is being loaded", "server_error", headers={"Retry-After": "1"})
        )
    chat.reload()
    expect(chat.get_by_text("the model is being loaded")).to_be_visible()
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    expect(chat.get_by_text("the model is being loaded")).to_have_count(0)


def test_the_key_is_asked_for_once_and_kept_for_the_tab(chat: Page, context: BrowserContext, api: StubApi) -> None:
    api.key = "secret"
    chat.reload()
    dialog = chat.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("Key", exact=True)).to_be_focused()
    dialog.get_by_label("Key", exact=True).fill("wrong")
    dialog.get_by_label("Key", exact=True).press("Enter")
    expect(dialog).to_contain_text("The server refused this key.")
    dialog.get_by_label("Key", exact=True).fill("secret")
    press(chat, "Use this key")
    expect(dialog).to_be_hidden()
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    ask(chat, "Hello")
    chat.reload()
    ask(chat, "Hello again")
    expect(dialog).to_be_hidden()
    assert api.authorizations[-1] == "Bearer secret"
    assert "secret" not in chat.evaluate("JSON.stringify(localStorage)")
    other = context.new_page()
    other.goto(api.address)
    expect(other.get_by_role("dialog", name="API key")).to_be_visible()


def test_without_a_key_the_request_fails_clearly(chat: Page, api: StubApi) -> None:
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    api.key = "secret"
    begin(chat, "Hello")
    chat.get_by_role("dialog", name="API key").get_by_role("button", name="Cancel").click()
    expect(chat.get_by_role("alert")).to_contain_text("the key is missing or wrong")


@pytest.mark.parametrize("width", [320, 390, 760, 761])
def test_no_width_scrolls_sideways(chat: Page, api: StubApi, width: int) -> None:
    chat.set_viewport_size({"width": width, "height": 700})
    api.models = ["a-model-with-a-very-long-name-that-does-not-fit-" * 3]
    chat.reload()
    api.script(WIDE)
    ask(chat, "y" * 300)
    api.script(Refusal(400, "z" * 300))
    begin(chat, "And then?")
    expect(chat.get_by_role("alert")).to_be_visible()
    press(chat, "Settings")
    for place in ("document.documentElement", "document.getElementById('scroller')", "document.getElementById('main')"):
        assert chat.evaluate(f"{place}.scrollWidth <= {place}.clientWidth"), place
    press(chat, "Done")
    for each in chat.locator("button:visible").all():
        bounds = each.bounding_box()
        assert bounds is not None
        assert bounds["x"] >= 0
        assert bounds["x"] + bounds["width"] <= width


def test_the_list_is_a_drawer_on_a_phone(chat: Page, api: StubApi) -> None:
    ask(chat, "Apples")
    chat.set_viewport_size({"width": 390, "height": 700})
    drawer = chat.get_by_role("navigation", name="Conversations")
    expect(drawer).to_be_hidden()
    menu = chat.get_by_role("button", name="Conversations")
    menu.click()
    expect(drawer).to_be_visible()
    expect(chat.get_by_role("searchbox")).to_be_focused()
    chat.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(menu).to_be_focused()
    menu.click()
    press(chat, "New")
    expect(drawer).to_be_hidden()
    expect(answers(chat)).to_have_count(0)
    menu.click()
    chat.mouse.click(380, 400)  # beside it
    expect(drawer).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light_follow_the_system_until_chosen(browser: Browser, api: StubApi, scheme: Any) -> None:
    def is_dark() -> bool:
        red, green, blue = re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
        return int(red) + int(green) + int(blue) < 3 * 128

    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(api.address)
    assert is_dark() == (scheme == "dark")
    press(page, "Light" if scheme == "dark" else "Dark")
    assert is_dark() == (scheme == "light")
    page.reload()
    assert is_dark() == (scheme == "light")
    press(page, "Dark" if scheme == "dark" else "Light")
    assert is_dark() == (scheme == "dark")
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    assert is_dark() == (scheme == "light")
    context.close()


CONTRASTS = """() => {
  const probe = document.body.appendChild(document.createElement("i"));
  const channels = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  };
  const light = (name) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = channels(name).map((channel) => linear(channel / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const against = (ink) => ["paper", "side", "tint"].map((ground) => [ink, ground, ratio(ink, ground)]);
  const found = ["ink", "soft", "accent", "bad"].flatMap(against);
  probe.remove();
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_ink_can_be_read_on_every_ground(chat: Page, scheme: Any) -> None:
    """The contrast that WCAG 2 asks of text, level AA."""
    chat.emulate_media(color_scheme=scheme)
    assert [each for each in chat.evaluate(CONTRASTS) if each[2] < 4.5] == []


def test_the_view_follows_an_answer_until_the_person_scrolls_up(chat: Page, api: StubApi) -> None:
    gates = [threading.Event() for _ in range(3)]
    api.script(LONG, gates[0], "\n\nSecond part.\n\n", gates[1], LONG, gates[2], "\n\nThe end.")
    begin(chat, "Hello")
    scroller = chat.locator("#scroller")
    to_end = "element => element.scrollHeight - element.scrollTop - element.clientHeight"
    expect(answers(chat)).to_contain_text("Paragraph 79")
    gates[0].set()
    expect(answers(chat)).to_contain_text("Second part.")
    assert scroller.evaluate(to_end) < 4
    scroller.hover()
    chat.mouse.wheel(0, -300)
    expect(chat.get_by_role("button", name="Go to the end")).to_be_visible()
    place = scroller.evaluate("element => element.scrollTop")
    gates[1].set()
    expect(answers(chat).get_by_text("Paragraph 79")).to_have_count(2)
    assert scroller.evaluate("element => element.scrollTop") == place
    press(chat, "Go to the end")
    gates[2].set()
    expect(answers(chat)).to_contain_text("The end.")
    assert scroller.evaluate(to_end) < 4


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


def test_keys(chat: Page, api: StubApi) -> None:
    box(chat).fill("One")
    box(chat).press("Shift+Enter")
    box(chat).press_sequentially("two?")
    expect(box(chat)).to_have_value("One\ntwo?")
    compose = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true})"
    box(chat).evaluate(f"element => element.dispatchEvent({compose})")
    assert api.bodies == []
    box(chat).press("Enter")
    expect(answers(chat)).to_have_attribute("aria-busy", "false")
    assert said(api.bodies[0]) == [("user", "One\ntwo?")]
    expect(chat.get_by_role("dialog", name="Keyboard")).to_be_hidden()
    box(chat).blur()
    chat.keyboard.press("?")
    expect(chat.get_by_role("dialog", name="Keyboard")).to_be_visible()
    chat.keyboard.press("Escape")
    chat.keyboard.press("/")
    expect(box(chat)).to_be_focused()
    chat.keyboard.press("Control+k")
    expect(chat.get_by_role("searchbox")).to_be_focused()
    chat.keyboard.press("Control+.")
    expect(chat.get_by_role("dialog", name="Settings")).to_be_visible()
    chat.keyboard.press("Escape")
    chat.keyboard.press("Control+Shift+o")
    expect(answers(chat)).to_have_count(0)
    expect(box(chat)).to_be_focused()


def test_everything_that_can_be_pressed_has_a_name(chat: Page, api: StubApi) -> None:
    api.script("```\ncode\n```")
    ask(chat, "Hello")
    press(chat, "Regenerate")
    expect(answers(chat)).to_contain_text("2/2")
    unnamed = (
        "[...document.querySelectorAll('button, input, textarea, select, dialog')].filter((each) => !("
        "each.ariaLabel || each.textContent.trim() || each.labels?.length || each.hasAttribute('aria-labelledby')))"
        ".map((each) => each.outerHTML)"
    )
    assert chat.evaluate(unnamed) == []


def test_a_full_storage_is_said(chat: Page, api: StubApi) -> None:
    chat.evaluate("localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 100))")
    ask(chat, "Hello")
    expect(answers(chat)).to_contain_text("Fine.")
    expect(chat.get_by_text("The browser has no room to keep this conversation.")).to_be_visible()
