"""A conversation keeps its replica while load allows, and little moves when replicas come and go."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liveshape.serve.affinity import conversation_key, ranked


def key(**document: Any) -> str:
    return conversation_key(json.dumps(document).encode())


def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def test_turns_of_a_conversation_have_one_key() -> None:
    first = said(("system", "Be kind."), ("user", "Hi"))
    later = [*first, *said(("assistant", "Hello."), ("user", "And?"))]
    assert key(messages=first) == key(messages=later, temperature=0.5) != ""
    assert key(messages=first) != key(messages=said(("system", "Be kind."), ("user", "Ho")))
    assert key(messages=said(("user", "Hi"))) != key(messages=first)
    assert key(messages=said(("user", "Hi")), system="A") != key(messages=said(("user", "Hi")), system="B")
    assert key(messages=first, prompt_cache_key="me") == key(prompt="x", prompt_cache_key="me")


def test_prompts_have_the_key_of_their_opening() -> None:
    opening = "Once upon a time " * 20
    assert key(prompt=opening + "a cat") == key(prompt=opening + "a dog") == key(prompt=[opening + "both"])
    assert key(prompt="a cat") != key(prompt="a dog")
    assert key(prompt=[[1, 2, 3], [4]]) == key(prompt=[1, 2, 3]) != key(prompt=[1, 2])


def test_what_has_no_prompt_has_no_key() -> None:
    assert key(input="a text to embed") == key(prompt=7) == key(messages="hi") == ""
    assert [conversation_key(body) for body in (b"", b"{", b"[]", b"\xff", b"[" * 100_000)] == [""] * 5


names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


@given(names, st.text(min_size=1), st.data())
def test_every_replica_is_in_one_rank_and_only_its_own_conversations_move(
    replicas: list[str], conversation: str, data: st.DataObject
) -> None:
    calm = ranked(conversation, dict.fromkeys(replicas, 3), spread=8)
    assert sorted(name for rank in calm for name in rank) == sorted(replicas)
    assert all(len(rank) == 1 for rank in calm)
    gone = data.draw(st.sampled_from(replicas))
    left = ranked(conversation, {name: 3 for name in replicas if name != gone}, spread=8)
    assert [rank for rank in calm if rank != [gone]] == left


@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 40), min_size=1), st.text(min_size=1))
def test_a_busy_replica_comes_last(loads: dict[str, int], conversation: str) -> None:
    order = [name for rank in ranked(conversation, loads, spread=8) for name in rank]
    busy = [loads[name] - min(loads.values()) > 8 for name in order]
    assert busy == sorted(busy)


def test_conversations_are_spread_and_requests_without_one_go_anywhere() -> None:
    loads = dict.fromkeys("xyz", 0)
    homes = Counter(ranked(str(number), loads, spread=8)[0][0] for number in range(300))
    assert min(homes[name] for name in loads) > 60
    assert ranked("", loads, spread=8) == [["x", "y", "z"]]
