"""Templates are programs of somebody else: whatever they do ends soon, and in an error of ours."""

from __future__ import annotations

import threading
import time
import tracemalloc
from typing import Any

import pytest

from liveshape.errors import FormatError, InputError
from liveshape.llm import template_limits
from liveshape.llm.chat_template import ChatTemplate

HELLO = [{"role": "user", "content": "how are you?"}]
DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = @ %}{% endfor %}{{ ns.x }}"

TOO_MUCH = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops with an end": "{% for a in range(99999) %}{% for b in range(99999) %}{% continue %}{% endfor %}{% endfor %}",
    "long output": "{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "long output of one text": "{% set x = 'x' * 99999 %}{% for a in range(99999) %}{{ x }}{% endfor %}",
    "long block": "{% set x = 'x' * 99999 %}{% set y %}{% for a in range(99999) %}{{ x }}{% endfor %}{% endset %}",
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "times": "{{ 'a' * 10**10 }}",
    "times from the left": "{{ 10**10 * 'a' }}",
    "lists": "{{ ([0] * 10**10)|length }}",
    "lists of lists": "{% set a = [0] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 %}{{ [c] * 1000 }}",
    "concatenation": DOUBLED.replace("@", "ns.x ~ ns.x"),
    "sums": DOUBLED.replace("@", "ns.x + ns.x"),
    "nested lists": DOUBLED.replace("@", "[ns.x, ns.x]"),
    "nested tuples": DOUBLED.replace("@", "(ns.x, ns.x)"),
    "nested tables": DOUBLED.replace("@", "{'a': ns.x, 'b': ns.x}"),
    "nested dict()": DOUBLED.replace("@", "dict(a=ns.x, b=ns.x)"),
    "replace": DOUBLED.replace("@", "ns.x.replace('a', ns.x)"),
    "replace filter": DOUBLED.replace("@", "ns.x|replace('a', ns.x)"),
    "join": DOUBLED.replace("@", "ns.x.join([ns.x, ns.x])"),
    "join filter": DOUBLED.replace("@", "[ns.x, ns.x]|join(ns.x)"),
    "percent": DOUBLED.replace("@", "'%s%s' % (ns.x, ns.x)"),
    "format": DOUBLED.replace("@", "'{0}{0}'.format(ns.x)"),
    "format filter": DOUBLED.replace("@", "'%s%s'|format(ns.x, ns.x)"),
    "tojson": DOUBLED.replace("@", "(ns.x|tojson) + (ns.x|tojson)"),
    "powers": "{{ 10 ** (10 ** 10) }}",
    "big integers": "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "center": "{{ 'a'.center(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "zfill": "{{ 'a'.zfill(10**10) }}",
    "expandtabs": "{{ ('\\t' * 99999).expandtabs(10**7) }}",
    "center filter": "{{ 'a'|center(10**10) }}",
    "indent": "{{ ('\\n' * 9999999)|indent(900, true, true) }}",
    "tojson indent": "{{ [1]|tojson(indent=10**10) }}",
    "tojson text indent": "{{ [1]|tojson(indent='x' * 99999) }}",
    "round": "{{ 1.5|round(10**9) }}",
    "slice": "{{ [1]|slice(10**10)|list }}",
    "batch": "{{ [1]|batch(10**10, 0)|list }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent width given": "{{ '%*d' % (10**9, 1) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format width given": "{{ '{:{w}}'.format(1, w=10**9) }}",
    "format_map": "{{ '{x:1000000000}'.format_map({'x': 1}) }}",
    "map": "{{ range(99999)|map('center', 900)|join }}",
    "sum of lists": "{{ [[1], [2]]|sum(start=[]) }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "two recursions": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "recursive loops": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "equal": DOUBLED.replace("@", "[ns.x, ns.x]").replace("range(60)", "range(40)") + "{{ ns.x == ns.x }}",
    "constants of the compiler": "{{ ('a'|center(999)|replace('a', 'b' * 9999999)) }}",
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_template_that_costs_too_much_ends_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name != "loops":  # one of them with the time that users wait
        monkeypatch.setattr(template_limits, "_SECONDS", 0.3)
    template = ChatTemplate(TOO_MUCH[name])
    tracemalloc.start()
    try:
        start = time.thread_time()
        with pytest.raises(FormatError, match="the chat template costs too much"):
            template.render(HELLO)
        # Memory is traced here, which makes everything several times as slow.
        assert time.thread_time() - start < 4
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
    finally:
        tracemalloc.stop()
    assert ChatTemplate("{{ messages[0].content }}").render(HELLO) == "how are you?"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ 1 + 'a' }}",
        "{{ messages[0]() }}",
        "{{ nothing.at.all }}",
        "{{ [1, 'a']|sort }}",
        "{{ 'a'|int + none }}",
        "{{ 'abc'.translate({97: 'b'}) }}",
        "{{ strftime_now(5) }}",
        "{{ range('a') }}",
        "{{ 'a'.encode('nothing') }}",
        "{{ 'a'|attr }}",
        "{{ lipsum(n=5) }}",
        "{% include 'other' %}",
        "{% extends 'other' %}",
        "{{ raise_exception('no') }}",
        "{{ raise_exception() }}",
        "{{ messages[0].content.format(1)[99] ~ cycler()|first }}",
    ],
)
def test_what_fails_inside_is_a_refusal(source: str) -> None:
    with pytest.raises(InputError, match="the chat template refuses these messages"):
        ChatTemplate(source).render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ 'a' | nothing }}",
        "{{ 'a' is nothing }}",
        "{% for %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{% if true %}" * 500 + "{% endif %}" * 500,
        "{% for a in [1] %}" * 100 + "{% endfor %}" * 100,
        "{{ '\ud800' }}{% if %}",
        "{% break %}",
    ],
)
def test_a_broken_template_is_a_format_error(source: str) -> None:
    with pytest.raises(FormatError, match="the chat template"):
        ChatTemplate(source).render(HELLO)


@pytest.mark.parametrize(
    "messages", [None, 5, "hello", b"hello", {"role": "user"}, [5], ["hello"], [None], [[("a", 1)]]]
)
def test_what_are_no_messages(messages: Any) -> None:
    with pytest.raises(InputError, match=r"message.*'role'.*was given"):
        ChatTemplate("{{ messages }}").render(messages)


def test_a_message_that_holds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "_SECONDS", 0.3)
    message: dict[str, Any] = {"role": "user"}
    message["content"] = message
    with pytest.raises((InputError, FormatError)):
        ChatTemplate("{{ messages|tojson }}").render([message])


def test_what_honest_templates_do_is_untouched() -> None:
    source = (
        "{%- macro line(m) -%}{{ m.role ~ ': ' ~ m['content']|trim + '\\n' }}{%- endmacro -%}"
        "{%- set ns = namespace(count=0, roles=[]) -%}"
        "{%- for m in messages -%}{%- set ns.count = ns.count + 1 -%}{%- set ns.roles = ns.roles + [m.role] -%}"
        "{{ line(m) }}{%- endfor -%}"
        "{{ ns.count }} {{ ns.roles|unique|join(', ') }} {{ 'a,b'.split(',')|list|tojson }} {{ '%05.2f' % 3.14159 }} "
        "{{ '{}-{:>4}'.format('a', 7) }} {{ {'a': [1, (2, 3)]}|tojson }} {{ 'x' * 3 }} {{ 2 ** 8 }} {{ 7 % 4 }} "
        "{{ messages|map(attribute='role')|list }} {{ messages[-1:]|length }} {{ ('a' ~ 1) in ['a1'] }}"
    )
    text = ChatTemplate(source).render([*HELLO, {"role": "assistant", "content": " fine "}])
    assert text == (
        'user: how are you?\nassistant: fine\n2 user, assistant ["a", "b"] 03.14 a-   7 '
        "{\"a\": [1, [2, 3]]} xxx 256 3 ['user', 'assistant'] 1 True"
    )


def test_a_long_conversation_costs_little() -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 4000
    source = (
        "{% for m in messages %}{% if loop.index0 % 2 == 0 %}{{ '<' + m.role + '>' }}{% endif %}"
        "{{ m.content | trim }}{{ (messages|length) ~ '\\n' }}{% endfor %}"
    )
    assert len(ChatTemplate(source).render(messages)) > 4_000_000


def test_threads_have_budgets_of_their_own() -> None:
    template = ChatTemplate("{% for m in range(1500) %}{{ 'x' * 20000 }}{% endfor %}")  # more than half of a budget
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(template.render([])))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [30_000_000] * 3
