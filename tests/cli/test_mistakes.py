"""Mistakes that users make, each with its exit code and what the message must say: what was given, what is allowed or
what to do. All are refused before a weight is uploaded."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape import packages
from liveshape.cli import main
from liveshape.errors import InputError, LiveshapeError, ShapeError
from liveshape.tools.web_page.web_runtime import _NEEDED
from tests.cli.calls import Capture
from tests.support.chat_model import write_folder_model, write_gguf_model

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 1234567\n"
USAGE, ADAPTER = 2, 3

# A command line, its exit code, and parts of what it prints to stderr; BUSY is a port that is in use.
COMMANDS: list[tuple[str, int, tuple[str, ...]]] = [
    # Names of commands and options
    ("genrate -p hi", USAGE, ("did you mean generate?",)),
    ("foo", USAGE, ("'foo'", "choose from 'check', 'devices'")),
    ("generate --promt hi", USAGE, ("usage: liveshape generate", "--promt", "did you mean --prompt?")),
    ("inspect demo --jsn", USAGE, ("usage: liveshape inspect", "did you mean --json?")),
    ("run demo --reapeat=3", USAGE, ("usage: liveshape run", "--reapeat, did you mean --repeat?")),
    ("serve --frobnicate", USAGE, ("usage: liveshape serve", "no option --frobnicate (", "--help lists them")),
    ("generate -p Once upon a time", USAGE, ("a time: too many arguments", "quote a text that has spaces")),
    ("generate model.gguf hf -p hi", USAGE, ("hf: too many arguments, it takes MODEL",)),
    ("--promt x", USAGE, ("no option --promt, did you mean --prompt?", "options come after the command")),
    ("--json=1 inspect demo", USAGE, ("--json comes after the command: liveshape inspect --json",)),
    ("completion tcsh", USAGE, ("'tcsh'", "'bash', 'zsh', 'fish'")),
    ("devices 1", USAGE, ("1: too many arguments, it takes no arguments",)),
    # Files that are no model
    ("generate modle.gguf -p hi", USAGE, ("modle.gguf: No such file", "did you mean model.gguf?")),
    ("generate storyy -p hi", USAGE, ("did you mean story?",)),
    ("generate smollm -p hi", USAGE, ("smollm: No such file", "a model of the Hub is named owner/name")),
    ("generate not.gguf -p hi", USAGE, ("not.gguf is no model, but a text", "a .gguf file")),
    ("generate page.gguf -p hi", USAGE, ("a web page in place of the file", "/resolve/")),
    ("generate zero.gguf -p hi", USAGE, ("zero.gguf is no model, but empty: download",)),
    ("generate zeros.gguf -p hi", USAGE, ("zeros.gguf is no model, but full of zeros: download",)),
    ("generate pointer.gguf -p hi", USAGE, ("a Git LFS pointer", "git lfs pull")),
    ("chat pointed -t", USAGE, ("no option -t",)),
    ("chat pointed", USAGE, ("pointed/model.safetensors is no safetensors file, but a Git LFS pointer",)),
    ("generate halved.gguf -p hi", USAGE, ("halved.gguf: tensor", "its download did not end")),
    ("generate headed.gguf -p hi", USAGE, ("headed.gguf", "its download did not end")),
    ("generate model.gguf.part -p hi", USAGE, ("a download that did not end: let it end",)),
    ("generate halved -p hi", USAGE, ("halved/model.safetensors: tensor", "its download did not end")),
    ("generate sharded -p hi", USAGE, ("1 file that the folder has not", "model-00002-of-00002.safetensors")),
    ("generate unended -p hi", USAGE, ("model.safetensors.incomplete is a download that did not end",)),
    ("generate bare -p hi", USAGE, ("there are weights, and config.json is missing",)),
    ("generate empty -p hi", USAGE, ("empty has no model: it is empty", "config.json, safetensors")),
    ("generate lost.safetensors -p hi", USAGE, ("config.json and tokenizer.json must be beside them",)),
    ("generate demo -p hi", USAGE, ("tokenizer.json does not exist", "`liveshape run`")),
    ("inspect pointer.gguf", USAGE, ("no ExecuTorch program (.pte), but a Git LFS pointer",)),
    ("inspect model.gguf", USAGE, ("a GGUF file", "liveshape export FILE -o FOLDER")),
    ("inspect empty", USAGE, ("empty must hold a model.pte", "liveshape export SOURCE")),
    ("run torch.pt", USAGE, ("such as torch.save writes", "liveshape export module:function")),
    ("run model.onnx", USAGE, ("an ONNX file", "liveshape export module:function")),
    ("run right.npy", USAGE, ("an array of numpy", "--inputs FILE")),
    ("inspect halved.pte", USAGE, ("halved.pte", "cut short")),
    ("perplexity zero.gguf text.txt", USAGE, ("zero.gguf is no model",)),
    ("export pointer.gguf -o out", USAGE, ("a Git LFS pointer",)),
    ("export text.txt -o out", USAGE, ("text.txt is not of a kind that can be exported", "module:function")),
    ("export empty -o out", USAGE, ("empty has no config.json", "it is empty")),
    ("web page.gguf -o out --runtime runtime", USAGE, ("a web page in place of the file",)),
    ("web story -o out --runtime empty", USAGE, ("--runtime empty has no runtime for pages", "make web")),
    ("bench pointer.gguf", USAGE, ("a Git LFS pointer",)),
    ("generate several -p hi", USAGE, ("several has 2 GGUF files: name one of them",)),
    # Numbers and choices
    ("generate -p hi --max-context 0", USAGE, ("--max-context: '0' is not a whole number above 0",)),
    ("generate -p hi -n -5", USAGE, ("'-5' is not a whole number above 0, nor -1",)),
    ("generate -p hi --temp -1", USAGE, ("temperature must be from 0 (greedy)", "-1.0 was given")),
    ("generate -p hi --temp warm", USAGE, ("--temp/--temperature", "'warm'")),
    ("generate -p hi --top-p 2", USAGE, ("top_p must be above 0 and at most 1", "2.0 was given")),
    ("generate -p hi --activations fp16", USAGE, ("'fp16'", "'float16'")),
    ("generate -p hi --activations flaot16", USAGE, ("did you mean float16?",)),
    ("generate model.gguf -p hi --quant 3bit", USAGE, ("'3bit'", "'4w'")),
    ("generate -p hi --quant 8w", USAGE, ("is a program already, and --quant 8w cannot change it",)),
    ("generate -p hi --backend vulkan", USAGE, ("'vulkan'", "'wgpu', 'dawn'")),
    ("generate -p hi --lookahead-tokens 0", USAGE, ("'0' is not a whole number above 0",)),
    ("generate -p hi --seed tomorrow", USAGE, ("'tomorrow' is not a whole number from 0 on, nor -1",)),
    ("serve --port 99999", USAGE, ("'99999' is not a port: a whole number from 0 to 65535",)),
    ("serve --cache-size lots", USAGE, ("'lots' is not a size: give bytes",)),
    ("run demo --repeat 0", USAGE, ("'0' is not a whole number above 0",)),
    ("run demo --seed -1", USAGE, ("--seed -1: a seed is 0 or above",)),
    ("check demo --tol abc", USAGE, ("--tol", "'abc'")),
    ("bench --shape 9z", USAGE, ("--shape 9z: there are tiny",)),
    ("scale --shape 8b --memory much", USAGE, ("'much' is not a size",)),
    ("export model.gguf -o out --group-size 33", USAGE, ("--group-size 33", "groups are of 4, 8, 12")),
    ("cache --clear everything", USAGE, ("'everything'", "'all', 'stale'")),
    # Devices and ports
    ("run demo --device voodoo", ADAPTER, ("no adapter is called 'voodoo'; this machine has",)),
    ("generate -p hi --device 99", ADAPTER, ("there is no adapter 99; this machine has",)),
    ("serve --port BUSY", USAGE, ("cannot listen at 127.0.0.1, port BUSY", "choose --host and --port")),
    ("serve not.gguf --port BUSY", USAGE, ("not.gguf is no model",)),
    ("serve nosuch.gguf --port BUSY", USAGE, ("nosuch.gguf: No such file",)),
    ("serve --embeddings nosuch.pte --port BUSY", USAGE, ("nosuch.pte: No such file",)),
    # Prompts, schemas and other texts
    ("generate model.gguf", USAGE, ("give a prompt: -p TEXT",)),
    ("generate -p ''", USAGE, ("-p: the prompt is empty", "--raw")),
    ("generate -f empty.txt", USAGE, ("-f empty.txt: the prompt is empty",)),
    ("generate -p hi -f text.txt", USAGE, ("-p and -f text.txt: give one of the two",)),
    ("generate -f nosuch.txt", USAGE, ("nosuch.txt: No such file",)),
    ("generate -f latin.txt", USAGE, ("latin.txt is no text in UTF-8: byte 3 is 0xe9", "iconv")),
    ("generate -f empty", USAGE, ("empty", "irectory")),
    ("generate -p hi --json-schema broken.json", USAGE, ("--json-schema broken.json: the file is no JSON", "line 1")),
    ("generate -p hi --json-schema list.json", USAGE, ("json_schema is an object or true, list was given",)),
    ("generate -p hi --json-schema {} --regex a", USAGE, ("json_schema and regex were given", "give one")),
    ("generate -p hi --regex (", USAGE, ("regex", "unclosed group")),
    ("generate -p hi --chat-template nosuch.jinja", USAGE, ("nosuch.jinja: No such file",)),
    ("generate -p hi --logprobs 3", USAGE, ("--logprobs", "add --json")),
    ("generate -p hi --raw --system Briefly", USAGE, ("--system cannot be told to the model: --raw",)),
    ("generate -p hi --lookahead nosuch", USAGE, ("nosuch: No such file",)),
    ("generate -p hi --prompt-cache empty", USAGE, ("--prompt-cache: empty is a folder", "the name of a file")),
    ("serve --api-key-file nosuch.txt --port BUSY", USAGE, ("nosuch.txt: No such file",)),
    ("serve --pooling mean --port BUSY", USAGE, ("--pooling mean is of an encoder: name it with --embeddings",)),
    ("perplexity model.gguf empty.txt", USAGE, ("is shorter than a context", "give a longer text")),
    ("perplexity model.gguf text.txt --context 1", USAGE, ("--context 1: a window has at least 4 tokens",)),
    # Inputs and outputs of programs
    ("run demo --input-shapes 1x7", USAGE, ("'1x7'", "rank 2 was given, 3 is needed", "for example")),
    ("run demo --input-shapes 1x200x64", USAGE, ("1x200x64 does not fit input 0: float32 up to 1x128x64",)),
    ("run demo --input-shapes 1x7y64", USAGE, ("'1x7y64' is not a shape", "for example")),
    ("run demo --input-shapes 1x7x64,1", USAGE, ("2 shapes for 1 input",)),
    ("run demo --inputs wide.npy", USAGE, ("dimension 2 is 65, up to 64 is allowed",)),
    ("run demo --inputs double.npy", USAGE, ("input 0 is float32, float64 was given", ".astype('float32')")),
    ("run demo --inputs flat.npy", USAGE, ("rank 2 was given, 3 is needed",)),
    ("run demo --inputs text.npy", USAGE, ("text.npy is no .npy file", "numpy.save writes one")),
    ("run demo --inputs text.txt", USAGE, ("text.txt: inputs are .npy, .npz or .bin files",)),
    ("run demo --inputs nosuch.npy", USAGE, ("nosuch.npy: No such file",)),
    ("run demo --inputs right.npy right.npy", USAGE, ("--inputs gives 2 arrays, this method takes 1", "input 0")),
    ("run demo --inputs x=right.npy", USAGE, ("no input is called 'x'; there are input 0",)),
    ("run demo --inputs right.npy --input-shapes 1x8x64", USAGE, ("input 0 is 1x8x64 there, and 1x7x64 by --inputs",)),
    ("run demo --method backward", USAGE, ("no method 'backward'; it has forward",)),
    ("run demo --output-file out.csv", USAGE, ("--output-file out.csv: write .npz for all outputs",)),
    ("run demo --output-file nosuch/out.npy", USAGE, ("the folder nosuch does not exist; make it first",)),
    ("inspect demo --data nosuch.ptd", USAGE, ("nosuch.ptd: No such file",)),
    ("inspect demo --html empty", USAGE, ("--html empty: it is a folder; name a file",)),
    ("inspect demo --profile list.json", USAGE, ("give --html FILE, too",)),
    ("inspect demo --profile broken.json --html out.html", USAGE, ("--profile broken.json: it is no JSON", "--json")),
    ("check", USAGE, ("check takes a PROGRAM, or --replay",)),
    ("check demo --shapes rows=3", USAGE, ("there is no dimension 'rows'",)),
    ("check demo --against nosuch:f", USAGE, ("No module named 'nosuch'", "module:function")),
    ("check demo --all --layers 3", USAGE, ("--all and --layers: give one of the two",)),
    # Where something is written
    ("export model.gguf", USAGE, ("the following arguments are required: -o/--output",)),
    ("export model.gguf -o text.txt", USAGE, ("text.txt exists: --force", "name another with -o")),
    ("export hf -o out --adapter empty", USAGE, ("empty has no adapter_config.json", "save_pretrained")),
    ("web story", USAGE, ("-o FOLDER writes it, --serve shows it",)),
    ("web story -o out --port 80", USAGE, ("--port 80 is of a server: give --serve, too",)),
    ("web story -o hf", USAGE, ("hf is not empty", "name another folder, or --force")),
]


def _load(**options: Any) -> Callable[[], object]:
    return lambda: liveshape.load("demo", **options)


def _call(*arguments: Any) -> Callable[[], object]:
    def call() -> object:
        with liveshape.load("demo") as model:
            return model(*arguments)

    return call


def _text(source: Any, **options: Any) -> Callable[[], object]:
    return lambda: liveshape.llm.load(source, **options)


# Calls of Python, their exceptions, and what these say.
CALLS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: liveshape.load("nosuch.pte"), FileNotFoundError, r"nosuch\.pte"),
    (lambda: liveshape.load("not.gguf"), LiveshapeError, r"not\.gguf.*but a text"),
    (lambda: liveshape.load("model.gguf"), LiveshapeError, r"a GGUF file; make a program of it"),
    (lambda: liveshape.load("empty"), LiveshapeError, r"empty must hold a model\.pte"),
    (lambda: liveshape.load(b""), LiveshapeError, r"too few for a flatbuffer"),
    (lambda: liveshape.load(7), InputError, r"cannot read a program from int"),  # type: ignore[arg-type]
    (_load(device="voodoo"), LiveshapeError, r"no adapter is called 'voodoo'; this machine has"),
    (_load(backend="cuda"), InputError, r"cuda"),
    (_load(method="backward"), InputError, r"no method 'backward'; it has forward"),
    (_load(activations="fp16"), InputError, r"fp16.*float16"),
    (_load(data_path="nosuch.ptd"), FileNotFoundError, r"nosuch\.ptd"),
    (_call(), InputError, r"1 input"),
    (_call(np.zeros((1, 129, 64), np.float32)), ShapeError, r"dimension 1 is 129, up to 128 is allowed"),
    (_call(np.zeros((1, 7, 64))), InputError, r"float64 was given; convert it with \.astype"),
    (_call([[1.0]]), LiveshapeError, r"input 0"),
    (_text("not.gguf"), LiveshapeError, r"not\.gguf is no model, but a text"),
    (_text("empty"), LiveshapeError, r"empty has no model: it is empty"),
    (_text("story", max_context=0), InputError, r"max_context 0: a context holds at least one token"),
    (_text("model.gguf", quant="3bit"), InputError, r"quant '3bit': auto, 4w"),
    (_text("story", activations="bf16"), InputError, r"bf16.*float16"),
    (_text(7), InputError, r"a path is expected, int was given"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that is not what somebody takes it for."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_gguf_model(folder / "model.gguf")
    write_folder_model(folder / "hf")
    gguf, program = (folder / "model.gguf").read_bytes(), (Path(liveshape.__file__).parent / "demo" / "block.pte")
    texts = {
        "pointer.gguf": POINTER,
        "not.gguf": "I am no GGUF file",
        "page.gguf": "<!DOCTYPE html><html>Entry not found",
        "text.txt": "Once upon a time",
        "text.npy": "1, 2, 3",
        "empty.txt": "\n",
        "broken.json": "{no",
        "list.json": "[1]",
    }
    contents = {
        "zero.gguf": b"",
        "zeros.gguf": bytes(4096),
        "halved.gguf": gguf[:-5000],
        "headed.gguf": gguf[:500],
        "model.gguf.part": gguf[:500],
        "halved.pte": program.read_bytes()[:3000],
        "torch.pt": b"PK\x03\x04" + bytes(100),
        "model.onnx": b"\x08\x07" + bytes(100),
        "latin.txt": "café".encode("latin-1"),
        "lost.safetensors": (folder / "hf" / "model.safetensors").read_bytes(),
    }
    for name, content in {**{name: text.encode() for name, text in texts.items()}, **contents}.items():
        (folder / name).write_bytes(content)
    for name in ("empty", "several"):
        (folder / name).mkdir()
    for name in _NEEDED:  # a runtime that nothing comes to load
        (folder / "runtime" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "runtime" / name).touch()
    for name in ("a", "b"):
        shutil.copy(folder / "model.gguf", folder / "several" / f"{name}.gguf")
    for name in ("pointed", "halved", "sharded", "unended", "bare"):
        shutil.copytree(folder / "hf", folder / name)
    weights = "model.safetensors"
    (folder / "pointed" / weights).write_text(POINTER)
    (folder / "halved" / weights).write_bytes((folder / "hf" / weights).read_bytes()[:-1000])
    (folder / "unended" / weights).rename(folder / "unended" / f"{weights}.incomplete")
    (folder / "sharded" / weights).rename(folder / "sharded" / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "sharded" / f"{weights}.index.json").write_text(json.dumps(index))
    (folder / "bare" / "config.json").unlink()
    arrays = {"right": np.zeros((1, 7, 64), np.float32), "wide": np.zeros((1, 7, 65), np.float32)}
    for name, array in {**arrays, "double": np.zeros((1, 7, 64)), "flat": np.zeros((7, 64), np.float32)}.items():
        np.save(folder / f"{name}.npy", array)
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    return place


@pytest.fixture(scope="module")
def busy() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        yield bound.getsockname()[1]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "code", "parts"), COMMANDS, ids=[line for line, _, _ in COMMANDS])
def test_commands(line: str, code: int, parts: tuple[str, ...], busy: int, capsys: Capture) -> None:
    assert main(shlex.split(line.replace("BUSY", str(busy)))) == code
    told = capsys.readouterr().err
    for part in parts:
        assert part.replace("BUSY", str(busy)) in told
    assert "Traceback" not in told


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_calls(number: int) -> None:
    call, kind, message = CALLS[number]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.usefixtures("here")
def test_a_package_that_is_missing_is_named_with_its_command(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    found = packages.find_spec
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "starlette" else found(name))
    assert main(["serve"]) == 1
    assert "serving needs starlette" in (told := capsys.readouterr().err)
    assert "pip install 'liveshape[serve]'" in told


@pytest.mark.usefixtures("here")
def test_a_cache_folder_that_cannot_be_written(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVESHAPE_CACHE", "/proc/nosuch")
    assert main(["generate", "model.gguf", "-p", "hi"]) == USAGE
    assert "/proc/nosuch" in (told := capsys.readouterr().err)
    assert "LIVESHAPE_CACHE" in told


@pytest.mark.usefixtures("here")
def test_a_disk_without_room(tmp_path: Path, capsys: Capture) -> None:
    """A file that may not grow beyond 64 KiB is refused as a full disk is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        code = main(["export", "model.gguf", "-o", str(tmp_path / "out")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    told = capsys.readouterr().err
    assert code == USAGE
    assert "nothing was kept there" in told
    assert not os.path.exists(tmp_path / "out")
