"""Conversations: each turn computes only what the cache does not hold, and nothing is forgotten in silence."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape import llm
from liveshape.errors import InputError
from liveshape.llm.engine.common_prefix import common_prefix
from liveshape.llm.generation.conversation import Conversation
from tests.llm.texts import END, FakeModel, answering, chatty, plain

ANSWERS = ("I am well 😀", "the sun was warm", "one after the other")


def conversation(*, system: str | None = None, **options: Any) -> tuple[Any, Conversation]:
    tokenizer = chatty()
    model: Any = FakeModel(answering(tokenizer, *ANSWERS), **options)
    return model, Conversation(model, tokenizer, system=system)


def test_the_longest_common_prefix() -> None:
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == common_prefix([1, 2, 3], [1, 2]) == 2
    assert common_prefix([5], [6]) == 0


def test_a_turn_computes_only_what_is_new() -> None:
    model, talk = conversation(system="Be brief")
    tokenizer = talk.tokenizer
    assert talk.reply("how are you?") == ANSWERS[0]
    assert talk.reply("and the sun?") == ANSWERS[1]
    assert talk.reply("how?") == ANSWERS[2]
    assert [message["role"] for message in talk.messages] == ["system", *["user", "assistant"] * 3]
    for turn, computed in enumerate(model.computed):
        said = talk.messages[: 2 + 2 * turn]
        ids = tokenizer.apply_chat_template(said)
        held = tokenizer.apply_chat_template(said[:-1], add_generation_prompt=False) if turn else []
        # The end of an answer was told, not computed upon, and a newline follows it: both are of the next turn.
        assert len(computed) == len(ids) - len(held) + (2 if turn else 0)
        assert ids[-len(computed) :] == computed


def test_the_cache_is_as_if_nothing_had_been_kept() -> None:
    model, talk = conversation()
    talk.reply("how are you?")
    responses = talk.ask("and the sun?")
    next(responses)
    next(responses)
    responses.close()  # as Ctrl-C does
    part = talk.messages[-1]["content"]
    assert part
    assert ANSWERS[1].startswith(part)
    *_, last = talk.ask("go on")
    ids = talk.tokenizer.apply_chat_template(talk.messages[:-1])
    assert list(model.tokens[: len(ids)]) == ids
    assert last.prompt_tokens == len(ids)
    assert len(model.computed[-1]) < len(ids) / 2


def test_starting_over_keeps_the_system_prompt_in_the_cache() -> None:
    model, talk = conversation(system="Be brief")
    talk.reply("how are you?")
    talk.reset()
    assert [message["role"] for message in talk.messages] == ["system"]
    assert talk.reply("how are you?") == ANSWERS[0]
    assert len(model.computed[-1]) == 1  # the same again: only the logits of its last token are missing


def test_another_use_of_the_model_is_noticed() -> None:
    model, talk = conversation()
    talk.reply("how are you?")
    llm.generate(model, talk.tokenizer, [{"role": "user", "content": "the dog"}])
    assert talk.reply("and the sun?") == ANSWERS[1]
    ids = talk.tokenizer.apply_chat_template(talk.messages[:-1])
    assert list(model.tokens[: len(ids)]) == ids


def test_state_that_cannot_go_back_starts_again() -> None:
    model, talk = conversation()
    model.positional = False
    assert [talk.reply("how are you?") for _ in ANSWERS] == list(ANSWERS)
    assert model.computed[0] == talk.tokenizer.apply_chat_template(talk.messages[:1])
    talk.reset()
    talk.reply("how are you?")
    assert model.computed[-1] == model.computed[0]  # although most of it was in the cache


def test_two_conversations_share_a_model() -> None:
    model, talk = conversation(system="Be brief")
    other = Conversation(model, talk.tokenizer, system="Be great")
    for answer in ANSWERS:
        for each in (talk, other):
            assert each.reply("how are you?") == answer
            ids = talk.tokenizer.apply_chat_template(each.messages[:-1])
            assert list(model.tokens[: len(ids)]) == ids
    assert model.position > 0
    model.reset()
    talk.reset()
    assert talk.reply("how are you?") == ANSWERS[0]


def test_too_long_is_an_error_that_changes_nothing() -> None:
    _, talk = conversation(context=70)
    assert talk.reply("how are you?") == ANSWERS[0]
    before, used = list(talk.messages), talk.context_used
    with pytest.raises(llm.ContextError, match=r"the prompt is \d+ tokens long, the context of this model is 70"):
        talk.ask("how are you? " * 10)
    assert (talk.messages, talk.context_used) == (before, used)
    assert talk.reply("how?") == ANSWERS[1]


def test_the_oldest_turns_are_dropped_and_the_system_prompt_stays() -> None:
    tokenizer = chatty()
    opening = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    answer = tokenizer.encode(f"I am well{END}", add_special_tokens=False)

    def following(cache: list[int]) -> int:
        begin = max(p for p in range(len(cache)) if cache[p : p + len(opening)] == opening) + len(opening)
        return answer[len(cache) - begin]

    model: Any = FakeModel(following, context=150)
    talk = Conversation(model, tokenizer, system="Be brief", drop_oldest=True)
    dropped = []
    for turn in range(9):
        assert talk.reply(f"how are you? {turn}") == "I am well"
        dropped.append(talk.dropped)
        ids = tokenizer.apply_chat_template(talk.messages[:-1])
        assert list(model.tokens[: len(ids)]) == ids
        assert len(ids) + 150 // 4 <= 150
        assert [each["role"] for each in talk.messages[:2]] == ["system", "user"]
    assert dropped[0] == 0
    assert set(dropped) == {0, 2}
    assert len(talk.messages) < 2 * 9
    before = list(talk.messages)
    with pytest.raises(llm.ContextError, match="--max-context"):  # of its own: nothing that is dropped would help
        talk.ask("how are you? " * 40)
    assert talk.messages == before


def test_an_error_on_the_way_leaves_a_conversation_that_works() -> None:
    model, talk = conversation()
    talk.reply("how are you?")
    good = model.following

    def breaks(cache: list[int]) -> int:
        raise RuntimeError("the device is gone")

    model.following = breaks
    with pytest.raises(RuntimeError, match="gone"):
        talk.reply("and the sun?")
    assert len(talk.messages) == 2  # the question was never answered
    model.following = good
    assert talk.reply("and the sun?") == ANSWERS[1]


def test_options_and_template_variables_are_passed_on() -> None:
    model, talk = conversation()
    assert talk.reply("how are you?", max_tokens=2, temperature=0.5, seed=1) == talk.messages[-1]["content"]
    assert model.samplings[-1].temperature == 0.5
    tokenizer = llm.Tokenizer(talk.tokenizer._backend, chat_templates={"default": "{{ enable_thinking }}"})
    talk = Conversation(model, tokenizer, enable_thinking="the cat")
    assert talk._render([{"role": "user", "content": "Hi"}]) == tokenizer.encode("the cat")


def test_without_a_template_the_text_goes_on() -> None:
    tokenizer = plain()
    row = [*tokenizer.encode(" there"), tokenizer.token_id(END)]
    model: Any = FakeModel(lambda cache: row[1] if cache[-1] == row[0] else row[0])
    assert len(row) == 2
    talk = Conversation(model, tokenizer)
    assert talk.reply("Once upon a time") == " there"
    assert talk.reply(" was a cat") == " there"
    assert tokenizer.decode(model.tokens, skip_special_tokens=True).startswith("Once upon a time there was a cat there")
    with pytest.raises(InputError, match="no system prompt"):
        Conversation(model, tokenizer, system="Be brief")
