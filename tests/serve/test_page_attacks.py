"""Hostile texts, names and files on the three pages: nothing runs, nothing is fetched, nothing is left that could."""

from __future__ import annotations

import json
import re
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from liveshape.graph import Limits
from liveshape.lower.problems import Problem
from liveshape.plan.compiling import compile
from liveshape.shipped import shipped
from liveshape.tools.program_page.document import method_document
from liveshape.tools.program_page.program_html import page as program_page
from liveshape.tools.web_page.static_html import chat_html, form_html
from tests.cli.calls import Capture, call
from tests.cli.test_inspect_html import HOSTILE, hostile_graph
from tests.serve.chatting import answers, ask, box, conversation, entry, press, show, upload
from tests.serve.payloads import hostile_texts, listening
from tests.serve.stub_api import Reasoning, Refusal, StubApi

pytestmark = pytest.mark.slow

TEXTS = hostile_texts()


def test_there_are_enough_of_them() -> None:
    assert len(set(TEXTS)) > 400


def test_answers_and_questions_stay_text(browser: Browser, api: StubApi) -> None:
    with listening(browser, api.address) as chat:
        chat.goto(api.address)
        given = conversation(TEXTS, title=TEXTS[0])
        for message, text in zip(given["messages"][::2], TEXTS, strict=True):
            message["content"] = text
        for message, text in zip(given["messages"][1::2], TEXTS, strict=True):
            message |= {"reasoning": text, "state": "failed", "error": {"message": text, "type": text, "param": text}}
        show(chat, *TEXTS, **given)
        assert chat.locator("article.user .said").all_text_contents() == TEXTS
        chat.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        touch = "each.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
        chat.evaluate(f"document.querySelectorAll('#thread *').forEach((each) => {touch})")


def test_what_streams_stays_text(browser: Browser, api: StubApi) -> None:
    """A character at a time, so that every beginning of a text was shown, too."""
    with listening(browser, api.address) as chat:
        chat.goto(api.address)
        for text in TEXTS[::16]:
            api.script(Reasoning(text), *text)
            ask(chat, text)
        api.script(Refusal(400, TEXTS[0], type=TEXTS[10], param=TEXTS[11], code=TEXTS[12]))
        ask(chat, "x")
        expect(chat.get_by_role("alert")).to_contain_text(TEXTS[0])


def test_names_of_models_stay_text(browser: Browser, api: StubApi) -> None:
    with listening(browser, api.address) as chat:
        api.models = TEXTS
        chat.goto(api.address)
        menu = chat.get_by_role("combobox", name="Model")
        expect(menu.locator("option")).to_have_count(len(TEXTS))
        assert menu.locator("option").all_text_contents() == TEXTS
        for name in TEXTS[:70:7]:
            menu.select_option(value=name.replace("\r", ""))
            expect(chat.locator(".empty .model")).to_be_visible()


DEEP = "[" * 100_000 + "]" * 100_000
POLLUTED = {"__proto__": {"polluted": 1}}
BAD_VALUES: list[Any] = [None, True, 0, -1, 1e308, "", "x" * 300_000, [], [[]], {}, POLLUTED, "\ud800"]
FORMAT = {"format": "liveshape conversations", "version": 1}


def hostile_files() -> list[str]:
    """Files of conversations in which one value after the other is what it should not be."""
    files = [
        "",
        "null",
        "[]",
        "0",
        '"x"',
        DEEP,
        "{" * 1000,
        '{"format": {}}',
        json.dumps({**FORMAT, "conversations": 3}),
    ]
    files += [json.dumps({**FORMAT, "conversations": [bad]}) for bad in BAD_VALUES]
    for bad in BAD_VALUES:
        for name in ("id", "title", "model", "updated", "settings", "leaf", "messages"):
            files.append(json.dumps({**FORMAT, "conversations": [{**conversation(["x"]), name: bad}]}))
        for name in (
            "id",
            "parent",
            "role",
            "content",
            "reasoning",
            "state",
            "error",
            "tokens",
            "rate",
            "first",
            "finish",
        ):
            made = conversation(["x"], id=f"m{len(files)}")
            made["messages"][1][name] = bad
            files.append(json.dumps({**FORMAT, "conversations": [made]}))
    made = conversation(["x"], id="__proto__", settings={"temperature": 1e308, "constructor": 1, "system": TEXTS[0]})
    text = json.dumps({**FORMAT, "conversations": [made]})
    files.append(text[:-1] + ', "__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}')
    files.append(text.replace('"settings": {', '"settings": {"__proto__": {"polluted": 1, "temperature": 5}, '))
    files.append(json.dumps({**FORMAT, "conversations": [conversation(["x"], id=f"n{each}") for each in range(500)]}))
    return files


def test_files_of_conversations(browser: Browser, api: StubApi) -> None:
    files = hostile_files()
    assert len(files) > 200
    with listening(browser, api.address) as chat:
        chat.goto(api.address)
        for text in files:
            upload(chat, text)
            expect(chat.locator("#notice p")).to_contain_text(re.compile("is not a file|added|no room"))
        for each in chat.locator("#conversations .open").all()[:20]:
            each.click()
        chat.reload()
        expect(box(chat)).to_be_visible()
        press(chat, "New")
        ask(chat, "Still there?")
        expect(answers(chat)).to_contain_text("Fine.")


def filled(value: Any, texts: Any) -> Any:
    """A document with a hostile text in the place of each of its hostile names."""
    if isinstance(value, str):
        return value.replace(HOSTILE, next(texts)) if HOSTILE in value else value
    if isinstance(value, list):
        return [filled(each, texts) for each in value]
    return {name: filled(each, texts) for name, each in value.items()} if isinstance(value, dict) else value


def test_names_in_a_program(browser: Browser, tmp_path: Path) -> None:
    plan = compile(hostile_graph(), Limits())
    problem = Problem(f"{HOSTILE} (node 7)", HOSTILE, HOSTILE)
    method = json.loads(json.dumps(method_document(plan.graph, plan, [problem])))
    names = cycle(TEXTS)
    methods = [filled(method, names) for _ in range(len(TEXTS) // json.dumps(method).count(HOSTILE[9:]) + 1)]
    file = tmp_path / "page.html"
    file.write_bytes(program_page({"program": TEXTS[0], "bytes": 7, "device": TEXTS[1], "methods": methods}))
    with listening(browser, file.as_uri()) as shown:
        shown.goto(file.as_uri())
        expect(shown.locator("html[data-ready]")).to_be_attached()
        expect(shown.get_by_role("heading", level=1)).to_have_text(TEXTS[0])
        menu = shown.get_by_role("combobox", name="Method")
        for place in range(len(methods)):
            menu.select_option(index=place)
            for tab in ("List", "Memory", "Graph"):
                shown.get_by_role("tab", name=tab).click()
            shown.get_by_role("combobox", name="Search").fill("e")
            shown.keyboard.press("Enter")
            shown.evaluate("document.activeElement.blur()")


def served(shown: Page, html: bytes) -> None:
    """Opens a page of `liveshape web` without the rest of its site."""
    shown.route("http://site.test/", lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"))
    shown.route("http://site.test/*/**", lambda route: route.fulfill(status=404))
    shown.goto("http://site.test/")


def test_names_on_the_pages_of_a_site(browser: Browser) -> None:
    def info(text: str) -> dict[str, Any]:
        dims = [{"min": 1, "max": 4, "multiple": 1, "status": "unknown", "symbol": text}]
        return {"name": text, "dtype": "float32", "bounds": [4], "dims": dims, "baked": {"0": text}, "size": 4}

    with listening(browser, "http://site.test/") as shown:
        facts = {
            "name": TEXTS[0],
            "method": TEXTS[1],
            "inputs": list(map(info, TEXTS)),
            "outputs": list(map(info, TEXTS)),
        }
        served(shown, form_html(facts))
        expect(shown.get_by_role("heading", level=1)).to_have_text(TEXTS[0])
        assert shown.locator("#inputs > *").count() == len(TEXTS)
    for name in TEXTS[::60]:
        with listening(browser, "http://site.test/") as shown:
            served(shown, chat_html({"name": name, "files": [name], "bytes": 7, "chat": True, "options": {}}))
            expect(shown.locator("#model-name")).to_be_attached()


def test_what_another_tab_wrote_stays_text(browser: Browser, api: StubApi) -> None:
    """The browser's storage is read as a stranger's file is."""
    with listening(browser, api.address) as chat:
        chat.goto(api.address)
        kept = {
            f"liveshape.conversation.t{place}": json.dumps(conversation([text], id=f"t{place}", title=text, model=text))
            for place, text in enumerate(TEXTS[:100])
        }
        kept["liveshape.settings"] = '{"__proto__": {"polluted": 1}, "system": 3}'
        kept["liveshape.theme"] = f'">{TEXTS[0]}'
        chat.evaluate("kept => Object.entries(kept).forEach((each) => localStorage.setItem(...each))", kept)
        chat.reload()
        expect(chat.locator("#conversations .open")).to_have_count(100)
        entry(chat, "toString").click()
        expect(answers(chat)).to_have_count(1)


DRAWING = b"<svg onload=alert(1)>"


def test_names_of_files_and_of_operators_in_them(browser: Browser, tmp_path: Path, capsys: Capture) -> None:
    """A program whose operators and whose file are called as an element that runs, by the command line."""
    program = shipped("demo")
    assert program is not None
    held = program.read_bytes()
    known = {each for each in re.findall(rb"(?:aten|et_vk)\.[\w.]+", held) if len(each) >= len(DRAWING)}
    assert known
    for each in known:
        held = held.replace(each, DRAWING.ljust(len(each), b"/"))
    file = tmp_path / f"{DRAWING.decode()}.pte"
    file.write_bytes(held)
    written = tmp_path / "page.html"
    assert call(capsys, "inspect", file, "--html", written)[0] == 4
    with listening(browser, written.as_uri()) as shown:
        shown.goto(written.as_uri())
        expect(shown.get_by_role("heading", level=1)).to_have_text(file.name)
        expect(shown.get_by_role("complementary", name="Details")).to_contain_text(DRAWING.decode())
