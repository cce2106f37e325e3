"""`liveshape generate` and `liveshape chat`: what goes where, what they take, and how they end."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.calls import Capture, call
from tests.llm.texts import CHAT_TEMPLATE, END, FakeModel, answering, chatty, reciting, write_folder

ANSWERS = ("I am well 😀", "the sun was warm")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {"bos_token": "<|im_start|>", "eos_token": END}
    return write_folder(tmp_path / "model", tokenizer_config=config, chat_template=CHAT_TEMPLATE)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every model that a command loads is a fake one that answers; here they are."""
    loaded: list[Any] = []

    class Loader:
        @staticmethod
        def load(
            path: Path, *, device: Any = None, activations: str = "", max_context: int | None = None, **_: Any
        ) -> FakeModel:
            loaded.append(FakeModel(answering(chatty(), *ANSWERS), context=max_context or 512))
            loaded[-1].trained_context = 4096
            loaded[-1].path, loaded[-1].asked, loaded[-1].activations = path, device, activations
            return loaded[-1]

    monkeypatch.setitem(sys.modules, "liveshape.llm.language_model", SimpleNamespace(LanguageModel=Loader))
    monkeypatch.setattr("liveshape.tools.model_argument.contexts_of", lambda path: (512, 4096))
    return loaded


def lines(monkeypatch: pytest.MonkeyPatch, *typed: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed) + "\n"))


# generate


def test_text_to_stdout_and_speed_to_stderr(capsys: Capture, folder: Path, models: list[Any]) -> None:
    code, out, err = call(capsys, "generate", folder, "-p", "how are you?", "--device", "nvidia")
    assert (code, out) == (0, ANSWERS[0] + "\n")
    assert "prompt:" in err
    assert "generation:" in err
    assert err.count("tokens/s") == 2
    assert "device:     a list, auto activations\n" in err
    assert (models[0].path, models[0].asked) == (folder, "nvidia")
    assert models[0].computed == [chatty().apply_chat_template([{"role": "user", "content": "how are you?"}])]


def test_every_flag_arrives(capsys: Capture, folder: Path, models: list[Any]) -> None:
    flags = "--temp 0.5 --top-k 7 --top-p 0.9 --min-p 0.1 --repeat-penalty 1.2 --seed 11 -n 3 --json".split()
    flags += "--frequency-penalty 0.4 --presence-penalty -0.3".split()
    code, out, _ = call(capsys, "generate", folder, "-p", "how?", "--system", "Be brief", *flags)
    document = json.loads(out)
    assert code == 0
    chosen = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "presence_penalty": -0.3,
        "seed": 11,
    }
    assert document["sampling"] == {**chosen, "logit_bias": {}}
    assert vars(models[0].samplings[0]) == {**chosen, "prompt_tokens": len(models[0].computed[0])}
    assert (document["generation_tokens"], document["finish_reason"], len(document["tokens"])) == (3, "length", 3)
    assert ANSWERS[0].startswith(document["text"])
    assert (document["device"], document["activations"], models[0].activations) == ("a list", "auto", "auto")
    assert document["stats"]["num_generated_tokens"] == 3
    assert "system\nBe brief<" in chatty().decode(models[0].computed[0])


def test_activations_are_the_callers_choice(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(capsys, "generate", folder, "-p", "how?", "--activations", "int8", "--lookahead", folder)[0] == 0
    lines(monkeypatch, "q")
    code, _, err = call(capsys, "chat", folder, "--activations", "int8")
    assert (code, "a list, int8 activations\n" in err) == (0, True)
    assert call(capsys, "generate", folder, "-p", "how?", "--activations", "float16")[0] == 0
    assert [model.activations for model in models] == ["int8"] * 3 + ["float16"]
    code, _, err = call(capsys, "generate", folder, "-p", "how?", "--activations", "int4")
    assert code == 2
    assert "'float32', 'float16', 'int8', 'auto'" in err


def test_who_guesses_ahead(capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(capsys, "generate", folder, "-p", "how?", "--lookahead", "ngram", "--lookahead-tokens", "3")[0] == 0
    assert call(capsys, "generate", folder, "-p", "how?", "--lookahead", folder)[0] == 0
    lines(monkeypatch, "how are you?", "q")
    assert call(capsys, "chat", folder, "--lookahead", "ngram")[0] == 0
    assert len(models) == 4
    assert [model.lookaheads for model in models] == [[("ngram", 3)], [(models[2], 7)], [], [("ngram", 7)]]


def test_a_seed_that_was_drawn_is_told(capsys: Capture, folder: Path, models: list[Any]) -> None:
    document = json.loads(call(capsys, "generate", folder, "-p", "how?", "--temp", "1", "--json")[1])
    assert document["sampling"]["seed"] == models[0].samplings[0].seed


def test_stop_strings(capsys: Capture, folder: Path, models: list[Any]) -> None:
    code, out, err = call(capsys, "generate", folder, "-p", "how?", "--stop", "xyz", "--stop", "we")
    assert (code, out) == (0, "I am \n")
    assert "(stop)" in err


def test_prompts_from_files_and_pipes(
    capsys: Capture, folder: Path, models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.txt").write_text("how are you?\n")
    lines(monkeypatch, "how are you?")
    assert call(capsys, "generate", folder, "-f", tmp_path / "prompt.txt")[0] == 0
    assert call(capsys, "generate", folder, "-p", "-")[0] == 0
    assert models[0].computed == models[1].computed
    assert chatty().decode(models[0].computed[0]).endswith(f"user\nhow are you?{END}\n<|im_start|>assistant\n")


def test_a_raw_prompt_has_no_template(capsys: Capture, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = chatty().encode(" there was" + END)
    prompt = chatty().encode("Once upon a time")
    made = FakeModel(reciting(tokens, len(prompt)))
    loader = SimpleNamespace(load=lambda *_, **__: made)
    monkeypatch.setitem(sys.modules, "liveshape.llm.language_model", SimpleNamespace(LanguageModel=loader))
    monkeypatch.setattr("liveshape.tools.model_argument.contexts_of", lambda path: (512, None))
    code, out, _ = call(capsys, "generate", folder, "-p", "Once upon a time", "--raw")
    assert (code, out) == (0, " there was\n")
    assert made.computed == [prompt]
    (folder / "chat_template.jinja").unlink()
    assert call(capsys, "generate", folder, "-p", "Once upon a time")[1] == " there was\n"


@pytest.mark.usefixtures("models")
def test_what_is_wrong_is_2(capsys: Capture, folder: Path, tmp_path: Path) -> None:
    wrong: list[tuple[tuple[object, ...], str]] = [
        ((folder,), "give a prompt"),
        ((folder, "-p", "a", "-f", "b"), "give one of the two"),
        ((folder, "-f", tmp_path / "none.txt"), "none.txt"),
        ((tmp_path / "nowhere", "-p", "a"), "nowhere"),
        ((tmp_path, "-p", "a"), "tokenizer.json"),
        ((folder, "-p", "the cat " * 600), "the context of this model is 512"),
        ((folder, "-p", "a", "--raw", "--system", "b"), "--system"),
        ((folder, "-p", "a", "--temp", "-1"), "temperature"),
        ((folder, "-p", "a", "-n", "0"), "'0' is not a whole number above 0, nor -1"),
        ((folder, "-p", "a", "-n", "-5"), "'-5' is not a whole number above 0, nor -1"),
        ((folder, "-p", "a", "-s", "-7"), "'-7' is not a whole number from 0 on, nor -1"),
        ((folder, "-f", folder / "noise.txt"), "noise.txt is no text in UTF-8: byte 1 is 0xff"),
    ]
    (folder / "noise.txt").write_bytes(b"a\xffb")
    for arguments, message in wrong:
        code, out, err = call(capsys, "generate", *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err


def test_several_prompts_are_answered_in_order(capsys: Capture, folder: Path, models: list[Any]) -> None:
    code, out, err = call(capsys, "generate", folder, "-p", "how are you?", "-p", "word " * 40 + "\nand more")
    label = ("word " * 40)[:69] + "..."
    assert (code, out) == (0, f"==> how are you? <==\n{ANSWERS[0]}\n\n==> {label} <==\n{ANSWERS[0]}\n")
    assert err.count("prompt:") == 2
    assert len(models) == 1
    code, out, _ = call(capsys, "generate", folder, "-p", "how are you?", "-p", "and you?", "--json")
    assert [each["text"] for each in json.loads(out)] == [ANSWERS[0]] * 2
    code, _, err = call(capsys, "generate", folder, "-p", "-", "-p", "-")
    assert (code, "stdin can be read once" in err) == (2, True)
    code, out, err = call(capsys, "generate", folder, "-p", "how are you?", "-p", "word " * 3000)
    assert (code, out, "context of this model is 512" in err) == (2, "", True)


def test_messages_of_several_lines_and_commands(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "talk.json"
    typed = [
        "how\\",
        "are you?",
        f"/save {file}",
        "/set temp 0.7",
        "/set",
        "r",
        f"/load {file}",
        '"""and',
        "",
        'the sun?"""',
    ]
    lines(monkeypatch, *typed, "h")
    code, out, err = call(capsys, "chat", folder)
    assert (code, out) == (0, f"{ANSWERS[0]}\n{ANSWERS[1]}\n")
    saved = json.loads(file.read_text())
    assert saved == [{"role": "user", "content": "how\nare you?"}, {"role": "assistant", "content": ANSWERS[0]}]
    said = chatty().apply_chat_template([*saved, {"role": "user", "content": "and\n\nthe sun?"}])
    assert list(models[0].tokens[: len(said)]) == said
    assert models[0].samplings[-1].temperature == 0.7
    assert "2 messages saved to" in err
    assert "temp is 0.7" in err
    assert "/set NAME VALUE" in err


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("/save", "/save needs a file"),
        ("/load nowhere.json", "nowhere.json does not exist"),
        ("/load {folder}/tokenizer.json", "is no conversation that /save has written"),
        ("/save {folder}/tokenizer.json", "is no conversation that /save has written"),
        ("/save {folder}", "is no file with a conversation"),
        ("/set temp", "the names are temp, top-k"),
        ("/set temp warm", "temp is a number, 'warm' was given"),
        ("/set top-p 7", "top_p"),
        ("/set max-tokens 0", "max_tokens is 0"),
        ("word {long}", "--max-context 16384"),
    ],
)
def test_what_fails_in_a_pipe_is_1(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch, typed: str, words: str
) -> None:
    before = (folder / "tokenizer.json").read_bytes()
    lines(monkeypatch, typed.format(folder=folder, long="word " * 3000), "how are you?")
    code, out, err = call(capsys, "chat", folder)
    assert (code, out) == (1, ANSWERS[0] + "\n")
    assert words in " ".join(err.split())
    assert (folder / "tokenizer.json").read_bytes() == before


def test_a_full_context_drops_the_oldest_turns_and_says_so(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(cache: list[int]) -> int:
        row = chatty().encode(ANSWERS[0] + END, add_special_tokens=False)
        begins = [place for place in range(len(cache)) if tuple(cache[place : place + len(opening)]) == opening]
        return row[len(cache) - begins[-1] - len(opening)]

    opening = tuple(chatty().encode("<|im_start|>assistant\n", add_special_tokens=False))
    made = models

    class Loader:
        @staticmethod
        def load(path: Path, **_: Any) -> FakeModel:
            made.append(FakeModel(answer, context=200))
            return made[-1]

    monkeypatch.setitem(sys.modules, "liveshape.llm.language_model", SimpleNamespace(LanguageModel=Loader))
    lines(monkeypatch, *[f"how are you? {place}" for place in range(8)])
    code, out, err = call(capsys, "chat", folder, "--system", "Be brief")
    assert (code, out) == (0, f"{ANSWERS[0]}\n" * 8)
    assert "the oldest 2 messages are dropped; for a longer conversation, export the model with a larger" in " ".join(
        err.split()
    )
    assert chatty().decode(made[0].tokens).startswith("<|im_start|>system\nBe brief<|im_end|>")
    assert "how are you? 7" in chatty().decode(made[0].tokens)


def test_a_template_of_a_file(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("mine " + CHAT_TEMPLATE)
    lines(monkeypatch, "how are you?")
    assert call(capsys, "chat", folder, "--chat-template", file)[:2] == (0, ANSWERS[0] + "\n")
    assert call(capsys, "generate", folder, "-p", "how are you?", "--chat-template", file)[1] == ANSWERS[0] + "\n"
    assert all(chatty().decode(model.computed[0]).startswith("mine <|im_start|>") for model in models)
    assert call(capsys, "chat", folder, "--chat-template", tmp_path / "none")[0] == 2


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize(
    "flags", ["--temp -1", "--top-p 0", "--stop=", "--lookahead nowhere", "--min-p 2", "--repeat-penalty 0"]
)
def test_options_are_looked_at_before_a_model_is_loaded(
    capsys: Capture, folder: Path, models: list[Any], command: str, flags: str
) -> None:
    prompt = ("-p", "a") if command == "generate" else ()
    assert call(capsys, command, folder, *prompt, *flags.split())[0] == 2
    assert not models


def test_a_prompt_that_does_not_fit_is_told_before_a_model_is_loaded(
    capsys: Capture, folder: Path, models: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text("how are you? " * 300)
    code, out, err = call(capsys, "generate", folder, "-f", tmp_path / "long.txt")
    told = " ".join(err.split())
    assert (code, out) == (2, "")
    assert "the context of this model is 512: shorten the prompt, or load the model with --max-context" in told
    assert "trained for 4,096 tokens" in told
    assert not models
    code, _, err = call(capsys, "generate", folder, "-f", tmp_path / "long.txt", "--max-context", 8192)
    assert code == 0
    assert models[0].max_context == 8192
    assert "trained for 4,096 tokens; text beyond that will be poor" in " ".join(err.split())


def test_a_full_context_says_the_flag_that_helps(capsys: Capture, folder: Path, models: list[Any]) -> None:
    prompt = len(chatty().apply_chat_template([{"role": "user", "content": "how are you?"}]))
    code, _, err = call(capsys, "generate", folder, "-p", "how are you?", "--max-context", prompt + 2)
    assert code == 0
    told = " ".join(err.split())
    assert f"the context of {prompt + 2} tokens is full: for a longer text, load the model with --max-context" in told
    assert "is full" not in call(capsys, "generate", folder, "-p", "how are you?", "-n", 3)[2]


def test_a_system_prompt_that_no_template_takes_is_told_before_a_model_is_loaded(
    capsys: Capture, tmp_path: Path, models: list[Any]
) -> None:
    folder = write_folder(tmp_path / "plain", tokenizer_config={"bos_token": "<|im_start|>", "eos_token": END})
    code, _, err = call(capsys, "generate", folder, "-p", "how?", "--system", "Be brief")
    assert code == 2
    assert "it has no chat template" in err
    assert not models


@pytest.mark.usefixtures("models")
def test_the_shipped_model_is_the_default(capsys: Capture, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("liveshape.tools.model_argument.shipped_model", lambda: folder)
    assert call(capsys, "generate", "-p", "how are you?")[1] == ANSWERS[0] + "\n"


def test_missing_packages_are_named(capsys: Capture, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liveshape.packages.find_spec", lambda name: None)
    code, _, err = call(capsys, "generate", folder, "-p", "how?")
    assert code == 1
    assert "pip install 'liveshape[llm]'" in err


def test_control_c_ends_between_tokens(capsys: Capture, folder: Path, models: list[Any]) -> None:
    original = FakeModel.stream

    def stream(self: FakeModel, *arguments: Any, **options: Any) -> Any:
        for count, token in enumerate(original(self, *arguments, **options)):
            if count == 2:
                os.kill(os.getpid(), signal.SIGINT)
            yield token

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeModel, "stream", stream)
        code, out, err = call(capsys, "generate", folder, "-p", "how are you?")
    assert code == 130
    assert 0 < len(out) - 1 < len(ANSWERS[0])
    assert "tokens/s" in err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# chat


def test_a_conversation(capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lines(monkeypatch, "how are you?", "", "and the sun?", "r", "how are you?", "h", "q", "never read")
    code, out, err = call(capsys, "chat", folder, "--system", "Be brief")
    assert (code, out) == (0, "".join(f"{answer}\n" for answer in (*ANSWERS, ANSWERS[0])))
    assert "started over" in err
    assert "/reset" in err
    assert "of 512" in err
    assert len(models[0].computed) == 3
    assert len(models[0].computed[1]) < len(models[0].computed[0])


def test_a_conversation_ends_with_its_input(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(monkeypatch, "/help", "/reset", "how are you?")
    assert call(capsys, "chat", folder)[:2] == (0, ANSWERS[0] + "\n")
    lines(monkeypatch, "/quit", "how are you?")
    assert call(capsys, "chat", folder)[:2] == (0, "")


def test_a_turn_that_is_too_long_does_not_end_the_conversation(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(monkeypatch, "the cat " * 600, "how are you?")
    code, out, err = call(capsys, "chat", folder)
    assert (code, out) == (1, ANSWERS[0] + "\n")
    assert "the context of this model is 512" in err


def test_control_c_stops_the_answer_only(
    capsys: Capture, folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, pressed = FakeModel.stream, []

    def stream(self: FakeModel, *arguments: Any, **options: Any) -> Any:
        for token in original(self, *arguments, **options):
            if not pressed:
                pressed.append(True)
                os.kill(os.getpid(), signal.SIGINT)
            yield token

    monkeypatch.setattr(FakeModel, "stream", stream)
    lines(monkeypatch, "how are you?", "and the sun?")
    code, out, _ = call(capsys, "chat", folder)
    first, second = out.splitlines()
    assert code == 0
    assert len(first) < len(ANSWERS[0])
    assert second == ANSWERS[1]


@pytest.mark.usefixtures("models")
def test_a_model_without_a_template_says_so(capsys: Capture, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "chat_template.jinja").unlink()
    lines(monkeypatch, "q")
    code, _, err = call(capsys, "chat", folder)
    assert code == 0
    assert "continues your text" in err
    assert call(capsys, "chat", folder, "--system", "Be brief")[0] == 2


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_help_teaches_with_examples(capsys: Capture, command: str) -> None:
    code, out, _ = call(capsys, command, "--help")
    assert code == 0
    assert f"liveshape {command}" in out.split("examples:")[1]
