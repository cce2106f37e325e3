"""Conversations on the chat page: kept in the browser, found, renamed, deleted, exported and imported."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.serve.chatting import answers, ask, begin, entry, press, said
from tests.serve.stub_api import Reasoning, StubApi

pytestmark = pytest.mark.slow


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


def test_a_full_storage_is_said(chat: Page, api: StubApi) -> None:
    chat.evaluate("localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 100))")
    ask(chat, "Hello")
    expect(answers(chat)).to_contain_text("Fine.")
    expect(chat.get_by_text("The browser has no room to keep this conversation.")).to_be_visible()
