"""The chat page in `make test`: a question, and an answer with a formula, code and a table, as it is written."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.serve.chatting import answers, ask, said
from tests.serve.stub_api import StubApi

ANSWER = r"""\(x^2\,dx\) and <img src=x>

```python
def f(): pass
```

| a |
| --- |
| **b** |"""


def test_a_question_and_its_answer(chat: Page, api: StubApi) -> None:
    api.script(*ANSWER)
    ask(chat, "Show me")
    shown = answers(chat)
    assert shown.locator("math msup").text_content() == "x2"
    assert shown.locator("pre .keyword").all_inner_texts() == ["def", "pass"]
    assert shown.locator("td strong").inner_text() == "b"
    assert shown.locator("img").count() == 0
    (body,) = api.bodies
    assert said(body) == [("user", "Show me")]
