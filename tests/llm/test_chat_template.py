"""Templates are programs of somebody else: whatever they do ends soon, and in an error of ours."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest

from liveshape.errors import FormatError, InputError
from liveshape.llm.text.chat_template import ChatTemplate
from tests.llm.templates import CONVERSATION, FAMILIES, TOOLS

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
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "two recursions": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "recursive loops": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "equal": DOUBLED.replace("@", "[ns.x, ns.x]").replace("range(60)", "range(40)") + "{{ ns.x == ns.x }}",
    "constants of the compiler": "{{ ('a'|center(999)|replace('a', 'b' * 9999999)) }}",
}


NESTED = "{% set v = range(1000)|map(attribute='q', default=v)|list %}"
TWICE = "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}" + (
    "{% set ns.y = (ns.y, ns.y) %}{% endfor %}"
)
FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = @ %}{% endfor %}{% endfor %}"
BOMBS = {
    "nested lists, printed": "{% set v=[0.5] %}" + NESTED * 3 + "{{ v }}",
    "nested lists, measured": "{% set v=[0.5] %}" + NESTED * 6 + "{{ v|string|length }}",
    "nested lists, compared": "{% set v=[0.5+0] %}{% set w=[0.25+0.25] %}"
    + (NESTED + NESTED.replace("set v", "set w").replace("=v", "=w")) * 6
    + "{{ v == w }}",
    "batch with a filling": "{% set v=[0] %}" + "{% set v = v|batch(1000, v)|list %}" * 5 + "{{ v|upper|length }}",
    "batch of letters": "{% set s = 'a' * 15000000 %}{% set l = s|batch(1)|list %}{{ l|length }}",
    "strftime with a width": "{{ strftime_now('x'*1000000 ~ '%200000000d')|length }}",
    "strftime, short": "{{ strftime_now('%200000000d')|length }}",
    "bytes times a number": "{{ ('a'.encode() * 3000000000)|length }}",
    "bytes.ljust": "{{ 'a'.encode().ljust(4000000000)|length }}",
    "int.to_bytes": "{{ (5).to_bytes(4000000000,'big')|length }}",
    "title": "{% set s='ba '*20000000 %}{{ s|title|length }}",
    "title of less": "{% set s='ba '*2000000 %}{{ s|title|length }}",
    "wordcount": "{% set s='ba '*20000000 %}{{ s|wordcount }}",
    "urlencode": "{% set s='\u20ac'*60000000 %}{{ s|urlencode|length }}",
    "sort": "{% set s='ba'*20000000 %}{{ s|sort|length }}",
    "list of letters": "{% set s='\u20ac'*4000000 %}{{ s|list|length }}",
    "split": "{% set s='a '*4000000 %}{{ s.split()|length }}",
    "hash of tuples": TWICE + "{{ {ns.x: 1} }}",
    "hash of an index": TWICE + "{{ {}[ns.x] }}",
    "hash of get": TWICE + "{{ {}.get(ns.x) }}",
    "tuples, compared": TWICE + "{{ ns.x == ns.y }}",
    "tuples, tested": TWICE + "{{ ns.x is eq(ns.y) }}",
    "tuples, looked for": TWICE + "{{ ns.x in [ns.y] }}",
    "tuples, found": TWICE + "{{ [ns.x].index(ns.y) }}",
    "tuples, unique": TWICE + "{{ [ns.x, ns.y]|unique|list }}",
    "tuples, raised": TWICE + "{{ raise_exception(ns.x) }}",
    "find from the right": "{% set s='a'*20000 %}{% set t='b'+'a'*1000 %}" + FOREVER.replace("@", "s.rfind(t)"),
    "in a range": FOREVER.replace("@", "'a' in range(99999)"),
    "clock": FOREVER.replace("@", "strftime_now('%c' * 90)"),
    "a table, copied": "{% set v = [('a', 1)] * 40000 %}" + FOREVER.replace("@", "namespace(v)"),
    "a long integer": "{% set v = ('f' * 5000000)|int(base=16) %}" + FOREVER.replace("@", "v + b"),
    "many nodes": FOREVER.replace("@", "[a, b, [a, b]]" + " or [a, b]" * 200),
    "long source": "{{ a }}" * 20_000,
    "deep lists": "{% set n = namespace(x=[]) %}{% for i in range(50000) %}{% set n.x=[n.x] %}{% endfor %}{{ n.x }}",
}
# In a child, under limits of the system: none is to take them, or time that a user would notice.
CHILD = """
import json, resource, sys
from liveshape.errors import LiveshapeError
from liveshape.llm.text.chat_template import ChatTemplate
from tests.llm.templates import CONVERSATION, FAMILIES, TOOLS

ChatTemplate("{{ messages|tojson }}").render([])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 1 << 40
room = used + (96 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for name, source in json.load(sys.stdin).items():
    before = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(before.ru_utime + before.ru_stime) + 4, resource.RLIM_INFINITY))
    print(name, end=": ", flush=True)
    try:
        ChatTemplate(source).render([{"role": "user", "content": "hi"}])
        print("rendered")
    except LiveshapeError as error:
        print(type(error).__name__)
"""


def test_bombs_end_within_limits_of_the_system() -> None:
    pytest.importorskip("resource")
    child = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(BOMBS), capture_output=True, text=True, check=False
    )
    ended = dict(line.split(": ") for line in child.stdout.splitlines())
    assert child.returncode == 0, (child.stdout[-200:], child.stderr[-500:])
    assert ended.keys() == BOMBS.keys()
    assert set(ended.values()) <= {"FormatError", "InputError"}, ended


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_template_that_costs_too_much_ends_soon(name: str) -> None:
    with pytest.raises((FormatError, InputError), match=r"costs too much|No filter named|attribute '\w+' .*unsafe"):
        ChatTemplate(TOO_MUCH[name]).render(HELLO)
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
        "{{ lipsum(n=5) }}",
        "{{ [[1], [2]]|sum(start=[]) }}",
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
        "{% include 'other' %}",
        "{% extends 'other' %}",
        "{% import 'other' as other %}",
        "{% block a %}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}",
        "{{ range(*messages) }}",
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


def test_a_message_that_holds_itself() -> None:
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
    # More than half of a budget.
    template = ChatTemplate("{% for m in range(400) %}{{ 'x' * 10000 }}{% endfor %}")
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(template.render([])))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [4_000_000] * 3


def plain_jinja(source: str, **variables: Any) -> str:
    from datetime import datetime

    from jinja2.sandbox import ImmutableSandboxedEnvironment

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made.from_string(source).render(**variables)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_templates_render_as_in_jinja_itself(name: str, tools: Any) -> None:
    for count in range(1, len(CONVERSATION) + 1):
        given = {"add_generation_prompt": True, "tools": tools, "bos_token": "<s>", "enable_thinking": count % 2 == 0}
        found = ChatTemplate(FAMILIES[name]).render(CONVERSATION[:count], **given)
        assert found == plain_jinja(FAMILIES[name], messages=CONVERSATION[:count], **given)


def test_values_of_the_caller_are_plain_ones() -> None:
    class Text(str):
        pass

    given = [{"role": Text("user"), "content": ({"a": (1, 2)}, [None, True, 1.5])}]
    assert ChatTemplate("{{ messages[0].content }}{{ messages[0].role }}").render(given) == (
        "({'a': (1, 2)}, [None, True, 1.5])user"
    )
    with pytest.raises(InputError, match="a chat template takes texts, numbers, lists and tables; tools has function"):
        ChatTemplate("a").render([], tools=[plain_jinja])
