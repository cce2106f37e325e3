"""Answers on the chat page: as they are written, stopped, asked for again, cut short."""

from __future__ import annotations

import re
import threading

import pytest
from playwright.sync_api import Page, expect

from tests.serve.chatting import answers, ask, begin, box, press, said
from tests.serve.stub_api import MODEL, Hangup, Reasoning, Refusal, StubApi

pytestmark = pytest.mark.slow


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


def test_an_answer_that_reached_its_limit_says_so(chat: Page, api: StubApi) -> None:
    api.finish = "length"
    ask(chat, "Hello")
    expect(answers(chat)).to_contain_text("ended at the limit of tokens")


def test_an_answer_that_was_cut_short_goes_on(chat: Page, api: StubApi) -> None:
    for text in ("Half of", " it."):
        api.script(text)
    api.finish = "length"
    ask(chat, "Talk")
    api.finish = "stop"
    press(chat, "Continue")
    expect(answers(chat)).to_have_count(2)
    expect(answers(chat).last).to_contain_text("it.")
    expect(chat.get_by_role("button", name="Continue")).to_have_count(0)
    ask(chat, "More")
    assert said(api.bodies[1]) == [("user", "Talk"), ("assistant", "Half of")]
    assert said(api.bodies[2]) == [("user", "Talk"), ("assistant", "Half of it."), ("user", "More")]


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
