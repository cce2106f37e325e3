"""What the chat page asks a server for: its settings, models and key; a server that loads or is gone."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.serve.chatting import answers, ask, begin, press, said
from tests.serve.stub_api import MODEL, Refusal, StubApi

pytestmark = pytest.mark.slow


def test_settings_are_sent_and_begin_the_next_conversation(chat: Page, api: StubApi) -> None:
    wanted = {"temperature": 0.25, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 64, "seed": 7}
    wanted |= {"repetition_penalty": 1.1, "frequency_penalty": -0.5, "presence_penalty": 2}
    press(chat, "Settings")
    chat.get_by_label("System prompt").fill("Be brief.")
    for name, value in wanted.items():
        chat.locator(f"[name={name}]").fill(str(value))
    chat.get_by_label("Stop at").fill("###\nThe end\n\n")
    chat.get_by_label("Logit bias").fill("11: -100, 2: 0.5")
    press(chat, "Done")
    ask(chat, "Hello")
    wanted |= {"stop": ["###", "The end"], "logit_bias": {"11": -100, "2": 0.5}}
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
    press(chat, "Settings")
    chat.get_by_label("Logit bias").fill("a word: 2")
    press(chat, "Done")
    expect(chat.get_by_role("dialog", name="Settings")).to_be_visible()


def test_the_model_can_be_chosen_where_there_are_several(chat: Page, api: StubApi) -> None:
    expect(chat.get_by_role("combobox", name="Model")).to_be_hidden()
    api.models = ["small", "large"]
    chat.reload()
    chat.get_by_role("combobox", name="Model").select_option("large")
    ask(chat, "Hello")
    assert api.bodies[0]["model"] == "large"


def test_a_server_that_is_gone_is_said_to_be(chat: Page, api: StubApi) -> None:
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    api.close()
    begin(chat, "Hello")
    expect(chat.get_by_role("alert")).to_contain_text("The server did not answer.")


def test_models_that_write_no_text_are_not_offered(chat: Page, api: StubApi) -> None:
    api.models = ["encoder", "small", "large"]
    api.tasks = {"encoder": ["embedding"]}
    chat.reload()
    expect(chat.get_by_role("combobox", name="Model").get_by_role("option")).to_have_text(["small", "large"])
    ask(chat, "Hello")
    assert api.bodies[0]["model"] == "small"


def test_a_model_without_a_template_continues_text(chat: Page, api: StubApi) -> None:
    api.tasks = {MODEL: ["completion"]}
    chat.reload()
    expect(chat.get_by_text("This model continues text: write how it begins.")).to_be_visible()
    expect(chat.get_by_placeholder("The beginning of a text")).to_be_visible()
    for text in (" was a bird", ", which sang", " all day."):
        api.script(text)
    ask(chat, "There")
    press(chat, "Continue")
    expect(answers(chat)).to_have_count(2)
    expect(answers(chat).last).to_have_attribute("aria-busy", "false")
    expect(answers(chat).last).to_contain_text(", which sang")
    expect(chat.get_by_role("button", name="Continue")).to_have_count(1)
    ask(chat, "It sang")
    texts = ["There", "There was a bird", "There was a bird, which sang It sang"]
    assert [body["prompt"] for body in api.bodies] == texts
    assert all("messages" not in body and body["max_tokens"] == 256 for body in api.bodies)


def test_an_empty_page_says_how_to_begin(chat: Page, api: StubApi) -> None:
    chat.get_by_role("group", name="Beginnings").get_by_role("button", name="Compare in a table").click()
    expect(answers(chat)).to_contain_text("Fine.")
    ((role, text),) = said(api.bodies[0])
    assert role == "user"
    assert text.startswith("Compare PNG")
    expect(chat.get_by_role("group", name="Beginnings")).to_have_count(0)


def test_a_question_waits_while_the_server_loads(chat: Page, api: StubApi) -> None:
    api.loading = 1_000
    chat.reload()
    loading = chat.get_by_text("The server loads its model")
    expect(loading).to_be_visible()
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    expect(chat.get_by_role("group", name="Beginnings")).to_have_count(0)  # of a chat or of a text, which is not known
    begin(chat, "Hello")
    expect(answers(chat)).to_have_attribute("aria-busy", "true")
    begin(chat, "Never mind")
    press(chat, "Stop")
    expect(answers(chat)).to_contain_text("stopped")
    press(chat, "Regenerate")
    assert api.bodies == []
    api.loading = 0
    expect(answers(chat)).to_contain_text("Fine.")
    expect(loading).to_be_hidden()
    assert len(api.bodies) == 1


def test_a_question_waits_for_a_server_that_started_again(chat: Page, api: StubApi) -> None:
    expect(chat.locator("#model-name")).to_have_text(MODEL)
    api.script(Refusal(503, "the model is being loaded", "server_error", code="loading"))
    begin(chat, "Hello")
    expect(chat.get_by_text("The server loads its model")).to_be_visible()
    expect(answers(chat)).to_contain_text("Fine.")
    assert len(api.bodies) == 2


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
