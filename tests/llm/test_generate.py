"""Generating: responses, ends, stop strings, streamers, callables, and what is refused before anything is computed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape import llm
from liveshape.errors import FormatError, InputError
from liveshape.llm.generation.host_sampling import host_sampler
from liveshape.llm.generation.prompts import prompt_ids
from liveshape.llm.generation.responses import speed_text
from liveshape.llm.generation.stats import Stats
from liveshape.llm.generation.stopping import StopWatch
from liveshape.llm.sampling_settings import Sampling
from tests.llm.texts import END, FakeModel, answering, chatty, plain, reciting, write_folder

PROMPT = "Once upon a time"
TALE = " there was a 😀 cat."


def model_saying(text: str = TALE + END, prompt: str = PROMPT, **options: Any) -> Any:
    tokenizer = plain()
    return FakeModel(reciting(tokenizer.encode(text), len(tokenizer.encode_prompt(prompt))), **options)


def test_a_response_for_each_token() -> None:
    tokenizer, model = plain(), model_saying()
    responses = list(llm.stream_generate(model, tokenizer, PROMPT, temperature=0.5, seed=3))
    prompt, ids = tokenizer.encode(PROMPT), tokenizer.encode(TALE + END)
    assert [response.token for response in responses] == ids
    assert "".join(response.text for response in responses) == TALE
    assert [response.generation_tokens for response in responses] == list(range(1, len(ids) + 1))
    assert [response.finish_reason for response in responses] == [None] * (len(ids) - 1) + ["stop"]
    last = responses[-1]
    assert (last.prompt_tokens, last.peak_memory) == (len(prompt), 2.0)
    assert last.prompt_tps > 0
    assert last.generation_tps > 0
    assert model.samplings == [Sampling(temperature=0.5, seed=3)]
    assert model.computed == [prompt]


def test_generate_gives_the_whole_text_each_time_anew(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer, model = plain(), model_saying()
    assert llm.generate(model, tokenizer, PROMPT) == TALE
    assert llm.generate(model, tokenizer, prompt=PROMPT, verbose=True) == TALE
    printed = capsys.readouterr().out
    assert printed.startswith(TALE + "\nprompt:")
    assert "tokens/s (stop)" in printed


def test_messages_and_ids_are_prompts_too() -> None:
    tokenizer = chatty()
    model: Any = FakeModel(answering(tokenizer, "I am well"))
    messages = [{"role": "user", "content": "how are you?"}]
    assert llm.generate(model, tokenizer, messages) == "I am well"
    ids = tokenizer.apply_chat_template(messages)
    assert llm.generate(model, tokenizer, ids) == "I am well"
    assert llm.generate(model, tokenizer, np.array(ids)) == "I am well"
    assert model.computed == [ids] * 3
    with pytest.raises(InputError, match="a sequence of float"):
        prompt_ids(tokenizer, [0.5])  # type: ignore[list-item]


@pytest.mark.parametrize("source", ["model", "tokenizer", "generation_config"])
def test_every_end_counts(source: str) -> None:
    end = plain().token_id(END)
    tokenizer = {"model": llm.Tokenizer(plain()._backend), "tokenizer": plain()}.get(source, chatty(eos_ids=(1,)))
    model = model_saying()
    model.eos_ids = (end,) if source == "model" else ()
    assert llm.generate(model, tokenizer, PROMPT, raw=True) == TALE


def test_the_length_is_bounded() -> None:
    tokenizer = plain()
    count = len(tokenizer.encode(PROMPT))
    *_, last = llm.stream_generate(model_saying(), tokenizer, PROMPT, max_tokens=3)
    assert (last.generation_tokens, last.finish_reason) == (3, "length")
    # The last token needs no place in the cache: it is told, not computed upon.
    *_, last = llm.stream_generate(model_saying(context=count + 4), tokenizer, PROMPT, max_tokens=None)
    assert (last.generation_tokens, last.finish_reason) == (5, "length")
    assert llm.generate(model_saying("the" * 400), tokenizer, PROMPT) == "the" * 256


def test_a_character_that_the_length_cuts_is_told_as_such() -> None:
    tokenizer = plain()
    cut = len(tokenizer.encode(" there was a 😀")) - 1
    assert llm.generate(model_saying(), tokenizer, PROMPT, max_tokens=cut) == " there was a \ufffd"


def test_what_cannot_work_is_an_error_before_anything_is_computed() -> None:
    tokenizer, model = plain(), model_saying(context=3)
    with pytest.raises(
        llm.ContextError, match=r"the prompt is \d+ tokens long, the context of this model is 3"
    ) as caught:
        llm.stream_generate(model, tokenizer, PROMPT)
    assert (caught.value.tokens, caught.value.context) == (len(tokenizer.encode(PROMPT)), 3)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([400], {}, "the token 400.*ends at 400"),
        ([-1], {}, "the token -1"),
        ([1], {"max_tokens": 0}, "max_tokens is 0"),
        ([1], {"max_tokens": -5}, "max_tokens is -5"),
        ([1], {"seed": -7}, "-1 for one that is drawn; -7 was given"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"stop": ""}, "stop string"),
    ]
    for prompt, options, message in wrong:
        with pytest.raises(InputError, match=message):
            llm.stream_generate(model, tokenizer, prompt, **options)
    assert not model.computed


def test_an_empty_prompt_is_what_begins_a_text() -> None:
    tokenizer, bare = plain(), llm.Tokenizer(plain()._backend)
    for prompt in ("", [], np.array([], np.int64)):
        assert prompt_ids(tokenizer, prompt) == [tokenizer.bos_id]
        assert prompt_ids(bare, prompt, 7) == [7]
        with pytest.raises(InputError, match="the prompt is empty, and this model has no token that begins a text"):
            prompt_ids(bare, prompt)
    model = model_saying()
    model.bos_id = 5
    assert next(iter(llm.stream_generate(model, bare, []))).prompt_tokens == 1
    assert model.computed == [[5]]


def test_one_token_is_no_tokens() -> None:
    *_, last = llm.stream_generate(model_saying(), plain(), [1], max_tokens=1)
    assert speed_text(last).count("1 token,") == 2
    stats = Stats(inference_start_ms=1000, first_token_ms=3500)
    assert "tokens/s, first token after 2.5 s\ngeneration:" in speed_text(last, stats)


# Stop strings


@pytest.mark.parametrize("stop", ["was a", " w", "as a 😀", "cat.", ["nothing", "e was", "was"], "."])
def test_a_stop_string_across_tokens(stop: str | list[str]) -> None:
    stops = [stop] if isinstance(stop, str) else stop
    tokenizer = plain()
    *_, last = responses = list(llm.stream_generate(model_saying(), tokenizer, PROMPT, stop=stop))
    text = "".join(response.text for response in responses)
    assert text == TALE[: min(TALE.index(each) for each in stops if each in TALE)]
    assert last.finish_reason == "stop"
    assert not any(each in text for each in stops)


def test_what_only_looks_like_a_stop_string_is_told_in_the_end() -> None:
    tokenizer = plain()
    assert llm.generate(model_saying(), tokenizer, PROMPT, stop=["cat.!", "was no"]) == TALE
    count = len(tokenizer.encode(" there was"))
    assert llm.generate(model_saying(), tokenizer, PROMPT, stop="was no", max_tokens=count) == " there was"


def test_the_first_stop_string_wins_and_the_longest_there() -> None:
    watch = StopWatch(["bc", "abcd", "bcd"])
    assert (watch.put("xa"), watch.put("bcd"), watch.matched) == ("x", "", "abcd")
    watch = StopWatch(["\n\n"])
    assert [watch.put("a\n"), watch.put("b\n"), watch.put("\nc"), watch.put("d"), watch.end()] == [
        "a",
        "\nb",
        "",
        "",
        "",
    ]
    watch = StopWatch(["aab"])
    assert watch.put("aaa") + watch.put("ab") == "aa"


# Streamers and callables


class Recorder:
    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.ended = 0

    def put(self, value: Any) -> None:
        assert value.ndim == 1
        self.seen.append(value.tolist())

    def end(self) -> None:
        self.ended += 1


def test_a_streamer_gets_the_prompt_then_each_token() -> None:
    tokenizer, recorder = plain(), Recorder()
    llm.generate(model_saying(), tokenizer, PROMPT, streamer=recorder)
    assert recorder.seen == [tokenizer.encode(PROMPT), *([token] for token in tokenizer.encode(TALE + END))]
    assert recorder.ended == 1
    responses = llm.stream_generate(model_saying(), tokenizer, PROMPT, streamer=recorder)
    next(responses)
    responses.close()
    assert recorder.ended == 2


def test_a_sampler_sees_the_logits() -> None:
    tokenizer, model = plain(), model_saying()
    seen = []

    def second(logits: Any) -> int:
        seen.append(logits.shape)
        return int(np.argsort(logits)[-1])

    assert llm.generate(model, tokenizer, PROMPT, sampler=second) == TALE
    assert set(seen) == {(400,)}
    assert model.computed[0] == tokenizer.encode(PROMPT)
    assert all(len(step) == 1 for step in model.computed[1:])


def test_logits_processors_see_the_tokens_and_change_what_is_chosen() -> None:
    tokenizer = plain()
    other = tokenizer.encode("!")[0]
    lengths = []

    def instead(tokens: Any, logits: Any) -> Any:
        lengths.append(len(tokens))
        return np.where(np.arange(len(logits)) == other, 99, logits)

    text = llm.generate(model_saying(), tokenizer, PROMPT, logits_processors=[instead], max_tokens=4)
    assert text == "!!!!"
    start = len(tokenizer.encode(PROMPT))
    assert lengths == list(range(start, start + 4))
    assert llm.generate(model_saying(), tokenizer, PROMPT, logits_processors=[lambda _, logits: logits]) == TALE


def test_settings_on_the_host_mean_what_they_say() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))
    none = np.array([], np.int64)

    def drawn(**settings: Any) -> set[int]:
        choose = host_sampler(Sampling(**settings))
        return {choose(none, logits) for _ in range(200)}

    assert drawn() == {1}
    assert drawn(temperature=1.0) == {0, 1, 2, 3}
    assert drawn(temperature=1.0, top_k=2) == {1, 2}
    assert drawn(temperature=1.0, top_p=0.65) == {1, 2}
    assert drawn(temperature=1.0, min_p=0.45) == {1, 2, 3}
    assert drawn(temperature=0.01) == {1}
    assert host_sampler(Sampling(repetition_penalty=2.0))(np.array([1]), logits) == 2
    first, again = (host_sampler(Sampling(temperature=1.0, seed=5)) for _ in range(2))
    assert [first(none, logits) for _ in range(20)] == [again(none, logits) for _ in range(20)]
    counted = host_sampler(Sampling(frequency_penalty=0.5, presence_penalty=0.4, prompt_tokens=2), {4: 1.5, 0: -100})
    flat = np.array([3.0, 3.0, 3.0, 3.0, 1.0], np.float32)
    assert counted(np.array([1, 1]), flat) == 1
    assert counted(np.array([1, 1, 1]), flat) == 2
    assert counted(np.array([1, 1, 1, 2, 3]), flat) == 4  # 2.5 by its bias, where those that were sampled have 2.1
    assert counted(np.array([1, 1, 1, 2, 3, 4, 4]), flat) == 1


# Numbers and files


def test_forced_tokens_begin_the_answer_and_end_nothing() -> None:
    model, (end,) = model_saying(), sorted(plain().eos_ids)
    forced = [5, end, 7]
    found = list(llm.stream_generate(model, plain(), PROMPT, forced_tokens=forced, max_tokens=5, logprobs=1))
    assert [each.token for each in found[:3]] == forced
    assert all(each.logprobs is not None for each in found)
    assert found[-1].generation_tokens > 3
    with pytest.raises(InputError, match="forced_tokens has 99999"):
        llm.stream_generate(model, plain(), PROMPT, forced_tokens=[99999])


def test_stats_have_the_names_of_executorch() -> None:
    stats, tokenizer = Stats(), plain()
    before = int(time.time() * 1000)
    llm.generate(model_saying(), tokenizer, PROMPT, stats=stats)
    times = [stats.inference_start_ms, stats.token_encode_end_ms, stats.first_token_ms, stats.inference_end_ms]
    assert [before, *times] == sorted([before, *times])
    assert stats.num_prompt_tokens == len(tokenizer.encode(PROMPT))
    assert stats.num_generated_tokens == len(tokenizer.encode(TALE + END))


def test_loading_asks_for_the_tokenizer_before_the_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        llm.load(tmp_path / "nowhere")
    (tmp_path / "alone.pte").touch()
    for path in (tmp_path, tmp_path / "alone.pte"):
        with pytest.raises(InputError, match=r"tokenizer\.json does not exist"):
            llm.load(path)
    folder = write_folder(tmp_path / "folder")
    for path in (folder, folder / "model.pte"):
        with pytest.raises(FormatError):  # the program is empty
            llm.load(path)


# Several prompts


def test_several_prompts_are_texts_of_their_own() -> None:
    tokenizer = chatty()
    model: Any = FakeModel(answering(tokenizer, "I am well"))
    messages = [{"role": "user", "content": "how are you?"}]
    ids = tokenizer.apply_chat_template(messages)
    for several in ([messages, messages], [ids, ids], (ids, np.array(ids), messages)):
        assert llm.generate(model, tokenizer, several) == ["I am well"] * len(several)
    tokenizer, model = plain(), model_saying()
    assert llm.generate(model, tokenizer, [PROMPT]) == [TALE]
    assert llm.generate(model, tokenizer, [PROMPT, PROMPT], keep_prefix=True) == [TALE, TALE]
    assert [len(each) for each in model.computed[-2:]] == [1, 1]


def test_one_wrong_prompt_of_several_is_an_error_before_anything_is_computed() -> None:
    tokenizer, model = plain(), model_saying()
    for wrong in (["Hi", "\ud800"], [[1], [400]], [[1], [0.5]], ["Hi", [[1]]]):
        with pytest.raises(InputError):
            llm.generate(model, tokenizer, wrong)
    assert not model.computed


def test_the_options_have_one_list_of_names() -> None:
    from inspect import Parameter, signature

    named = [
        name for name, each in signature(llm.stream_generate).parameters.items() if each.kind is Parameter.KEYWORD_ONLY
    ]
    assert list(llm.GenerationOptions.__annotations__) == named
    with pytest.raises(TypeError, match="temperatur"):
        llm.generate(model_saying(), plain(), PROMPT, temperatur=0.5)  # type: ignore[call-overload]
