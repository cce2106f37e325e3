"""The chat page on every width, in the dark, by keys and to a screen reader."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.chatting import answers, ask, begin, box, press, said
from tests.serve.stub_api import Refusal, StubApi

pytestmark = pytest.mark.slow


LONG = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(80))
WIDE = (
    f"```text\n{'wide ' * 80}\n```\n\n|{' head |' * 12}\n|{' --- |' * 12}\n|{' cell_of_a_table |' * 12}\n\n{'x' * 400}"
)


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
