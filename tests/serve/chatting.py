"""The hands of a person at the chat page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from playwright.sync_api import Locator, Page, expect


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


def conversation(texts: Sequence[str], **fields: Any) -> dict[str, Any]:
    """A conversation as Export writes it, whose answers are these texts."""
    messages: list[dict[str, Any]] = []
    for count, text in enumerate(texts):
        parent = messages[-1]["id"] if messages else None
        messages.append({"id": f"q{count}", "parent": parent, "role": "user", "content": "Go on."})
        messages.append({"id": f"a{count}", "parent": f"q{count}", "role": "assistant", "content": text})
    return {"id": "imported", "title": "Imported", "updated": 1, "settings": {}, "messages": messages, **fields}


def show(chat: Page, *texts: str, **fields: Any) -> list[Locator]:
    """Opens a conversation with these answers, by a file of it, and gives what is shown of each."""
    file = {"format": "liveshape conversations", "version": 1, "conversations": [conversation(texts, **fields)]}
    upload(chat, json.dumps(file))
    chat.locator("#conversations .open").first.click()
    shown = chat.locator("article.answer > .prose")  # by role, hundreds of answers take seconds to be found
    expect(shown).to_have_count(len(texts))
    return shown.all()


def upload(chat: Page, text: str) -> None:
    """Imports a file of this text."""
    file = {"name": "file.json", "mimeType": "application/json", "buffer": text.encode("utf-8", "surrogatepass")}
    chat.get_by_label("File to import").set_input_files(file)  # type: ignore[arg-type]
