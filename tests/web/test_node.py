"""The npm package in Node, on Dawn: the same programs, tokens and errors as from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape import load
from liveshape.llm import LanguageModel, Sampling, generate
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped, shipped_model
from tests.support.browser import node

pytestmark = pytest.mark.slow

WEB = Path(__file__).parents[2] / "web"
SIZES = (128, 1, 7, 31, 64, 127, 1)
IDS = [1, 403, 407, 261]


def environment() -> dict[str, str]:
    """With the software driver that is unpacked beside Python, where there is one."""
    drivers = Path(sys.prefix) / "share" / "liveshape" / "vulkan"
    if not (drivers / "driver.json").exists():
        return dict(os.environ)
    return {**os.environ, "VK_DRIVER_FILES": str(drivers / "driver.json"), "LD_LIBRARY_PATH": str(drivers)}


def in_node(task: str, *given: str, refused: bool = False) -> list[dict[str, Any]]:
    """The lines that a task of web/test/programs.mjs says; where it may be `refused`, also lines of what failed."""
    command = [node(), str(WEB / "test" / "programs.mjs"), task, *given]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=1500, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert run.returncode == 0, run.stderr[-3000:]
    assert refused or not any("failed" in line for line in lines), lines[-1]
    return lines


def test_a_program_at_many_live_shapes(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 128, 64)).astype(np.float32)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    program = shipped("demo")
    lines = in_node("shapes", str(program), str(tmp_path / "x.bin"), "64", ",".join(map(str, SIZES)))
    progress = [line["progress"] for line in lines if "progress" in line]
    assert progress[-1]["done"] == progress[-1]["total"] > 0
    found = [line for line in lines if "size" in line]
    assert [line["size"] for line in found] == list(SIZES)
    with load(program) as model:
        for line in found:
            wanted = model(x[:, : line["size"]])
            assert line["shape"] == list(wanted.shape)
            np.testing.assert_allclose(np.float32(line["data"]).reshape(wanted.shape), wanted, 1e-5, 1e-5)
    assert lines[-1] == {"memory": 0}


def test_errors_are_those_of_the_package() -> None:
    lines = in_node("refusals", str(shipped("demo")))
    assert [line.get("name") for line in lines[:4]] == ["ShapeError", "ShapeError", "InputError", "InputError"]
    assert "dimension 1 is 200, up to 128 is allowed" in lines[0]["error"]
    assert "float32, int32 was given" in lines[2]["error"]
    assert "input" in lines[3]["error"]
    assert lines[4]["error"]
    assert lines[5] == {"size": 64}


def test_inputs_and_options_are_what_they_say() -> None:
    *wrong, bytes_of_it, same, temperature, tokens, context, memory = in_node(
        "inputs", str(shipped("demo")), str(shipped_model())
    )
    few = wrong.pop(2)
    assert few["error"] == "input 0: [1,2,64] of float32 takes 512 bytes, and 128 were given"
    assert [line["name"] for line in wrong] == ["TypeError"] * 5
    assert wrong[0]["error"] == "input 0: numbers of float32 come as Float32Array, and Int32Array was given"
    assert "with a typed array is needed" in wrong[1]["error"]
    assert [line["error"] for line in wrong[2:]] == [
        f"input 0: {shape} is no shape" for shape in ("[1,2.5,64]", "[1,-1,64]", '["1","2","64"]')
    ]
    assert bytes_of_it == {"same": True}
    assert same == {"same": True}, "an input is taken when the call is made"
    assert temperature["error"] == "temperature must be a finite number, NaN was given"
    assert tokens["error"] == "maxTokens must be a finite number, Infinity was given"
    assert context["error"] == "maxContext must be a finite number, NaN was given"
    assert memory == {"memory": 0}


def test_the_block_of_the_docs_runs(tmp_path: Path) -> None:
    """docs/web.md as it is written, beside a program and a folder of these names."""
    (block,) = re.findall(r"^```js\n(.*?)^```$", (WEB.parent / "docs" / "web.md").read_text(), re.MULTILINE | re.DOTALL)
    flush = 'await new Promise((resolve) => process.stdout.write("", resolve));'
    (tmp_path / "page.mjs").write_text(f"{block}\n{flush}\nprocess.exit();\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "liveshape").symlink_to(WEB)
    (tmp_path / "model.pte").symlink_to(shipped("demo"))
    (tmp_path / "story").symlink_to(shipped_model())
    options: Any = {"cwd": tmp_path, "env": environment(), "timeout": 1500, "capture_output": True, "text": True}
    run = subprocess.run([node(), "page.mjs"], check=False, **options)
    assert run.returncode == 0, run.stderr[-3000:]
    assert float(run.stdout.split()[0]) <= 1
    assert len(run.stdout) > 300, "progress and a hundred tokens"


def test_tokens_are_those_of_python() -> None:
    text = "Once upon a time"
    lines = in_node("tokens", str(shipped_model()), json.dumps(IDS), "100", text)
    found = {key: value for line in lines for key, value in line.items()}
    tokenizer = Tokenizer.load(shipped_model())
    with LanguageModel.load(shipped_model()) as model:
        assert found["tokens"] == list(model.stream(IDS, Sampling(), max_tokens=100))
        model.reset()
        wanted = generate(model, tokenizer, text, max_tokens=20, temperature=0, raw=True)
        chosen = {"max_tokens": 30, "temperature": 0.8, "top_p": 0.9, "seed": 7}
        sampled = generate(model, tokenizer, text, raw=True, **chosen)
    assert found["ids"] == tokenizer.encode(text)
    assert found["text"] == found["again"] == wanted
    assert found["sampled"] == sampled
    assert (found["aborted"], found["seen"]) == ("AbortError", 3)
    assert found["memory"] == 0


# Filters, loop controls and a date, which take much of jinja2 and of Python's library.
TEMPLATE = """{%- for message in messages %}{% if loop.index > 3 %}{% break %}{% endif %}
{{- message.role | title }}: {{ message.content | trim }} {{ {"a": [1, 2]} | tojson }}
{%- endfor %} {{ strftime_now("%Y") | length }}"""


def test_a_chat_template(tmp_path: Path) -> None:
    for path in shipped_model().iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    messages = [{"role": "user", "content": " Tell of <a cat> & a dog. "}]
    found, about = in_node("chat", str(tmp_path), json.dumps(messages))
    tokenizer = Tokenizer.load(tmp_path)
    with LanguageModel.load(tmp_path) as model:
        assert found["text"] == generate(model, tokenizer, messages, max_tokens=12, temperature=0)
    assert found["chat"]
    assert 0 < about["bootMs"]["python"] < about["bootMs"]["ready"]
