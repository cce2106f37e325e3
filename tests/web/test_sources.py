"""GGUF files and Hugging Face folders as they are, in Node: every byte of the virtual program, errors, and tokens."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.export.file.program_file import file_layout
from liveshape.export.folder import MODEL, Settings, checkpoint_program, export_folder
from liveshape.export.model.config import Quantization
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.opening import open_checkpoint
from liveshape.graph.constants import Interleaved, Paired, all_bytes
from liveshape.llm import LanguageModel, Sampling
from liveshape.llm.text.tokenizer import Tokenizer
from tests.export.family_models import MODELS, folder_of
from tests.export.tiny import QWEN2, QWEN3, random_weights, write_safetensors
from tests.support.browser import node
from tests.web.source_models import NUMBERS, WIDE, byte_level, write_model_folder, write_model_gguf
from tests.web.test_node import WEB, in_node

pytestmark = pytest.mark.slow

REFUSED = ("gpt2", "gpt_oss")  # transposed, and stacked experts
FAMILIES = [name for name in MODELS if name not in REFUSED]
TIED = {**WIDE, "tie_word_embeddings": True}
FOLDERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "folder_bf16": (WIDE, "BF16"),
    "folder_tied_f64": (TIED, "F64"),
    "folder_qwen2_f16": ({**QWEN2, "vocab_size": 330}, "F16"),
    "folder_qwen3_f32": ({**QWEN3, "vocab_size": 330}, "F32"),
}
# Of a file that is quantized already, and of floats.
MODES = [(source, mode) for source in ("Q8_0", "folder_bf16") for mode in ("4w", "8da4w", "8w", "none")]
LONGEST = 256  # positions of any of these models
GGUFS = [*NUMBERS, "tied_Q4_0", "tied_Q6_K", "bytes_Q4_K"]
CASES = [*GGUFS, *FOLDERS, *FAMILIES, *(f"{source}+{mode}" for source, mode in MODES), "sharded"]


@dataclass(frozen=True)
class Read:
    """What Node has read of a source, and the folder with the native program and with the virtual one."""

    source: Path
    native: Path
    virtual: Path
    told: dict[str, Any]


def write_source(home: Path, name: str) -> Path:
    if name in FOLDERS:
        write_model_folder(home / name, *FOLDERS[name])
        return home / name
    if name in MODELS:
        return folder_of(home / name, MODELS[name])[0]
    if name == "sharded":
        shutil.copytree(home / "folder_qwen3_f32", home / name)
        return sharded(home / name)
    form, path = name.removeprefix("tied_").removeprefix("bytes_"), home / f"{name}.gguf"
    words = byte_level() if name.startswith("bytes_") else {}
    write_model_gguf(path, form, tied=name.startswith("tied_"), **words)
    return path


def sharded(folder: Path) -> Path:
    """Its safetensors in two files, with an index."""
    from liveshape.export.sources.safetensors import SafetensorsFolder

    tensors = SafetensorsFolder(folder)
    weights = {name: tensors.read(name) for name in tensors.tensors}
    files = {f"part{part}.safetensors": sorted(weights)[part::2] for part in range(2)}
    for file, names in files.items():
        write_safetensors(folder / file, {name: weights[name] for name in names})
    del tensors
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: file for file, names in files.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources")


def in_pyodide(*tasks: str) -> list[dict[str, Any]]:
    """What web/test/virtual.mjs says of each task: a source, a folder for its program, and a quantization or none."""
    command = [node(), str(WEB / "test" / "virtual.mjs"), *tasks]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert run.returncode == 0, run.stderr[-3000:]
    assert len(lines) == len(tasks)
    return lines


@pytest.fixture(scope="module")
def read(home: Path) -> Mapping[str, Read]:
    """Every case, in one Node."""
    places = {name: write_source(home, name) for name in CASES if "+" not in name}
    cases = {name: (places[name.partition("+")[0]], name.partition("+")[2] or "auto") for name in CASES}
    told = in_pyodide(*(f"{source}={home / 'virtual' / name}={mode}" for name, (source, mode) in cases.items()))
    found = {}
    for (name, (source, mode)), line in zip(cases.items(), told, strict=True):
        export_folder(open_checkpoint(source), home / "native" / name, Settings(Quantization(mode)))  # type: ignore[arg-type]
        found[name] = Read(source, home / "native" / name, home / "virtual" / name, line)
    return found


def rotary_ranges(source: Path, mode: str) -> list[tuple[int, int]]:
    """Where the rotary tables lie: powers and cosines are of numpy's own there, which differ by processor."""
    program = checkpoint_program(open_checkpoint(source), Settings(Quantization(mode)))  # type: ignore[arg-type]
    starts = file_layout(program).starts
    tables = [each for each in program.constants if each.key.startswith("rope")]
    assert tables
    return [(starts[each.key], starts[each.key] + each.nbytes) for each in tables]


@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_that_of_the_native_file(name: str, read: Mapping[str, Read]) -> None:
    case = read[name]
    assert "error" not in case.told, case.told
    assert case.told["wrong"] == 0, "pieces from odd places differ from the whole"
    native, virtual = (np.fromfile(folder / MODEL, np.uint8) for folder in (case.native, case.virtual))
    assert native.shape == virtual.shape
    differs = native != virtual
    for start, end in rotary_ranges(case.source, name.partition("+")[2] or "auto"):
        found, wanted = virtual[start:end].view("<f4"), native[start:end].view("<f4")
        np.testing.assert_allclose(found, wanted, rtol=0, atol=LONGEST * 2**-23)  # the last bit of a frequency
        differs[start:end] = False
    assert not differs.any(), f"{differs.sum()} bytes, the first at {differs.argmax()}"


@pytest.mark.parametrize("name", GGUFS)
def test_the_tokenizer_of_a_gguf_file_is_the_native_one(name: str, read: Mapping[str, Read]) -> None:
    for file in read[name].native.glob("*.json"):
        assert json.loads(file.read_text()) == json.loads((read[name].virtual / file.name).read_text()), file.name


@pytest.mark.parametrize("name", [*GGUFS, *FOLDERS])
def test_no_weight_is_read_twice(name: str, read: Mapping[str, Read]) -> None:
    case = read[name]
    files = [case.source] if case.source.is_file() else list(case.source.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    assert 0.9 * size < case.told["bytes"] <= size


def test_what_is_refused_says_what_to_do(home: Path) -> None:
    tasks = [folder_of(home / name, MODELS[name])[0] for name in REFUSED]
    cut = home / "cut.gguf"
    write_model_gguf(cut, "Q4_0")
    cut.write_bytes(cut.read_bytes()[:-1000])
    other = home / "other.gguf"
    other.write_bytes(b"GGUX" + bytes(100))
    told = in_pyodide(*(f"{path}={home / 'refused'}" for path in (*tasks, cut, other)))
    assert ["liveshape export" in line["error"] for line in told[:2]] == [True, True]
    assert all("UnsupportedError" in line["error"] for line in told[:2])
    for line, path in zip(told[2:], (cut, other), strict=True):
        with pytest.raises(Exception, match="gguf") as caught:
            open_gguf(path)
        assert line["error"].split(": ", 1)[0].endswith("FormatError")
        assert line["error"].endswith(str(caught.value).partition(path.name)[2])


def test_weights_that_are_no_numbers_are_refused(home: Path) -> None:
    write_model_folder(home / "nan", WIDE, "F32")
    weights = random_weights(open_checkpoint(home / "nan").config)
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan
    write_safetensors(home / "nan" / "model.safetensors", weights)
    (line,) = in_pyodide(f"{home / 'nan'}={home / 'refused'}")
    assert line["error"].startswith("model.layers.1.mlp.up_proj.weight: rows 0 to ")
    assert line["error"].endswith("have weights that are no finite numbers")


def test_matrices_behind_each_other_are_read_once(tmp_path: Path) -> None:
    """Fused matrices of more than one piece of an upload (8 MiB), some interleaved by halves."""
    sizes = [9 << 20, 3 << 20, 7 << 20]
    data = np.random.default_rng(3).integers(0, 256, sum(sizes), np.uint8)
    (tmp_path / "data").write_bytes(data.tobytes())
    script = """
        import fs from "node:fs";
        import { constantOf, upload } from "%s/dist/constants.js";
        const [data, sizes] = [new Uint8Array(fs.readFileSync("data")), %s];
        let [read, start] = [0, 0];
        const source = { size: data.length, read: (at, bytes) => ((read += bytes), data.subarray(at, at + bytes)) };
        const ranges = sizes.map((size) => ["range", "data", (start += size) - size, size]);
        const tree = ["interleaved", [["paired", ranges[0], 4096, 64], ...ranges.slice(1)], sizes];
        const made = new Uint8Array(data.length);
        upload((id, at, bytes) => made.set(bytes, at), [1, data.length], constantOf(tree, new Map([["data", source]])));
        fs.writeFileSync("made", made);
        console.log(read);
    """
    command = [node(), "--input-type=module", "-e", script % (WEB, sizes)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=300)
    assert int(run.stdout) == data.size
    first, *others = (memoryview(each) for each in np.split(data, np.cumsum(sizes)[:2]))
    wanted = Interleaved((Paired(first, 4096, 64), *others), tuple(sizes))
    assert (tmp_path / "made").read_bytes() == bytes(all_bytes(wanted))


@pytest.mark.parametrize("name", ["tied_Q4_0", "folder_bf16"])
def test_tokens_are_those_of_python(name: str, tmp_path: Path) -> None:
    """Greedy tokens of a GGUF file and of a folder, on the page's own road to the GPU."""
    text, native = "the cat sat on a mat", tmp_path / "native"
    source = write_source(tmp_path, name)
    export_folder(open_checkpoint(source), native)
    ids = Tokenizer.load(native).encode(text)
    lines = in_node("tokens", str(source), json.dumps(ids), "40", text)
    found = {key: value for line in lines for key, value in line.items()}
    with LanguageModel.load(native) as model:
        assert found["tokens"] == list(model.stream(ids, Sampling(), max_tokens=40))
    assert found["ids"] == ids
    # No native text beside it: random tokens are invalid UTF-8, which the npm package spells in another way.
    assert found["text"] == found["again"]
    assert found["memory"] == 0


@pytest.mark.parametrize("context", [200, 48])
def test_another_context(tmp_path: Path, context: int) -> None:
    """Of an exported folder, whose rotary tables are made anew, and of a GGUF file."""
    write_model_gguf(tmp_path / "model.gguf", "Q4_K")
    export_folder(
        open_checkpoint(str(tmp_path / "model.gguf")), tmp_path / "made", Settings(max_seq=16, max_context=64)
    )
    ids = list(range(3, 40))
    with LanguageModel.load(tmp_path / "made", max_context=context) as model:
        wanted = list(model.stream(ids, Sampling(), max_tokens=context - len(ids)))
    for source in ("made", "model.gguf"):
        chosen = json.dumps({"maxContext": context})
        (found,) = in_node("ids", str(tmp_path / source), json.dumps(ids), str(context - len(ids)), chosen)
        assert found == {"tokens": wanted, "maxContext": context}, source
