"""docs/models.md: the model families, the perplexity of each quantization recipe, the cost of rounded activations, and
the time and memory of an export.

Results are kept in docs/models.json, a row at a time: a run that was interrupted resumes where it was.

Run: python -m bench.models [--again] [--page]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import export
from liveshape.device.backends import open_device
from liveshape.export.model.config import Mode, Quantization
from liveshape.export.model.families import FAMILIES
from liveshape.export.sources.ggml_blocks import FORMATS
from liveshape.graph.activation_kinds import ACTIVATIONS, AUTO, FLOAT16, FLOAT32, INT8, resolve_activations
from liveshape.tools.console import size_text

DOCS = Path(__file__).parent.parent / "docs"
MEASURED, PAGE = DOCS / "models.json", DOCS / "models.md"
# The weights of 8da4w are those of 4w.
RECIPES: tuple[Mode, ...] = ("none", "8w", "auto", "4w")
EXPORTS = [*((model, mode) for model in ("smollm2", "stories15M") for mode in RECIPES), ("1b", "auto"), ("1b", "4w")]
NAMES = {
    "smollm2": "SmolLM2-135M-Instruct, GGUF of Q4_1 and Q8_0",
    "smollm2-q4_k_m": "SmolLM2-135M-Instruct, GGUF of Q4_K, Q6_K, Q5_0 and Q8_0",
    "stories15M": "stories15M, llama2.c, float32",
    "1b": "random weights of Llama-3.2-1B's shape, bfloat16",
}
TEXTS = {
    "stories15M": "stories15M, stories",
    "smollm2-stories": "SmolLM2-135M, stories",
    "smollm2-prose": "SmolLM2-135M, prose",
}
# Models with 4-bit layers: from files that have them, and from a recipe.
ROUNDED: tuple[tuple[str, Mode, str], ...] = (
    ("stories15M", "4w", "stories"),
    ("smollm2", "auto", "stories"),
    ("smollm2", "auto", "prose"),
    ("smollm2-q4_k_m", "auto", "stories"),
    ("smollm2-q4_k_m", "auto", "prose"),
)
WINDOW = 256
Row = dict[str, Any]


def page(measured: dict[str, list[Row]]) -> str:
    """The page, from the measurements and from the tables of the code.

    Example: `PAGE.write_text(page(json.loads(MEASURED.read_text())))`.
    """
    families = [
        f"| {family.architecture} | {name} | {'yes' if family.gguf else ''} |" for name, family in FAMILIES.items()
    ]
    formats = [
        f"| {form.name} | {form.layout.bits} | {form.layout.group} | {'yes' if form.layout.minima else ''} |"
        for form in FORMATS.values()
        if form.layout is not None
    ]
    plain = {row["text"]: row["perplexity"] for row in measured["perplexities"] if row["quant"] == "none"}
    texts = [
        f"| {TEXTS[row['text']]} | {row['quant']} | {row['bits']:.2f} | {row['perplexity']:.3f} | "
        f"{100 * (row['perplexity'] / plain[row['text']] - 1):+.1f}% |"
        for row in measured["perplexities"]
    ]
    exports = [
        f"| {NAMES[row['model']]} | {row['quant']} | {size_text(row['bytes'])} | {row['bits']:.2f} | "
        f"{row['processor']:.1f} | {row['seconds']:.1f} | {row['load']:.1f} / {row['cores']} | "
        f"{size_text(row['peak'])} |"
        for row in measured["exports"]
    ]
    exact = {(row["model"], row["text"]): row for row in measured["activations"] if row["activations"] == FLOAT32}
    rounded = [
        f"| {NAMES[row['model']]} | {row['quant']} | {row['text']}, {row['counted']} tokens | "
        f"{exact[row['model'], row['text']]['perplexity']:.3f} | {row['activations']} | {row['perplexity']:.3f} | "
        f"{100 * (row['perplexity'] / exact[row['model'], row['text']]['perplexity'] - 1):+.2f}% |"
        for row in measured["activations"]
        if row["activations"] != FLOAT32 and (row["model"], row["text"]) in exact
    ]
    return "\n".join(
        [
            "# Models",
            "",
            "Written by `python -m bench.models`, which measures everything below; the numbers are in `models.json`.",
            "",
            "## Families",
            "",
            "By `architectures` of config.json, and whether GGUF files of it are read; those of Mistral are called",
            "llama, and are. Every family is tested with small random weights against transformers and against a",
            "reference decoder.",
            "",
            "| architecture | family | GGUF |",
            "| --- | --- | --- |",
            *families,
            "",
            "## Quantized sources",
            "",
            "`--quant auto`, the default, keeps quantized weights exactly as they are stored: no weight changes.",
            "",
            "| format | stored bits | group size | with minima |",
            "| --- | --- | --- | --- |",
            *formats,
            "",
            "Greedy decoding of SmolLM2's Q4_1 file equals torch's on its dequantized weights, token for token; logits",
            "of the same model as Q8_0 and as Q4_K_M agree to 1e-3 (`tests/export/test_real_models.py`).",
            "",
            "## The perplexity of quantized weights",
            "",
            "Perplexity of the weights that a recipe makes, with torch in float32, on texts of our own",
            "(`python -m tests.export.perplexity`). The channels of SmolLM2 are permuted first, which changes no",
            "output and leaves nothing of the 4-bit grid of its file. `8da4w` has the weights of `4w`.",
            "",
            "| model and text | recipe | bits per weight | perplexity | against float weights |",
            "| --- | --- | --- | --- | --- |",
            *texts,
            "",
            "## The perplexity of rounded activations",
            "",
            "What the inputs of products are rounded to is the user's choice, `activations=` and `--activations`:",
            "",
            "- `float32`: nothing is rounded, but that large products of floats keep 22 of the 24 bits of each factor",
            "  on data centre GPUs ([dawn.md](dawn.md#float32-by-matrix-units)); not with `deterministic=True`.",
            "- `float16`: inputs of linear layers, matmul, convolution and attention of prompts may be rounded to",
            "  float16 where the device has matrix units, a power of two per row keeping them in its range; sums are",
            "  float32. Without matrix units it is float32, to the bit.",
            "- `int8`: rows of 4- and 8-bit layers are quantized in groups of 32; integer sums are exact.",
            "- With either, on a GPU, scales of weights that have minima or groups of 16 (the K-quants of GGUF files)",
            "  are rounded to float16, where each column of a weight keeps its digits there.",
            "- `auto`, the default of language models everywhere: float16 where the device has matrix units, else",
            "  float32. The line that names the device says which.",
            "",
            "Perplexity by liveshape itself, of the same file with float32 and with rounded activations, on the texts",
            f"above: `liveshape perplexity MODEL TEXT -c {WINDOW} --activations KIND`. float16 is measured where there",
            "are matrix units.",
            "",
            "| model | recipe | text | float32 | activations | perplexity | cost |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rounded,
            "",
            "## Time and memory of an export",
            "",
            "With a context of 2048 tokens, or the model's, each in a process of its own (`bench/export.py`). Where",
            "the load was above the number of cores, only CPU seconds can be compared. Bits are those of the file.",
            "",
            "| source | recipe | model.pte | bits per weight | CPU s | wall s | load / cores | peak host memory |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *exports,
            "",
        ]
    )


def measure(measured: dict[str, list[Row]]) -> None:
    """Measure the rows that are missing."""
    from tests.export.perplexity import SUBJECTS, evaluated

    done = {(row["model"], row["quant"]) for row in measured["exports"]}
    for model, mode in EXPORTS:
        if (model, mode) not in done:
            with export.source_of(model) as source:
                load, cost = os.getloadavg()[0], export.measure(source, mode)
                parameters = export.parameters_of(source)
            row = {"seconds": cost.seconds, "processor": cost.processor, "peak": cost.peak, "bytes": cost.file}
            row |= {"bits": 8 * cost.file / parameters, "load": load, "cores": os.cpu_count()}
            _keep(measured, "exports", {"model": model, "quant": mode, **row})
    told = {(row["text"], row["quant"]) for row in measured["perplexities"]}
    for text, subject in SUBJECTS.items():
        checkpoint = subject.open()
        for mode in RECIPES:
            if (text, mode) not in told:
                found, bits = evaluated(checkpoint, subject, Quantization(mode))
                row = {"bits": bits, "tokens": found.counted, "perplexity": found.perplexity}
                _keep(measured, "perplexities", {"text": text, "quant": mode, **row})
    asked = {(row["model"], row["text"], row["activations"]) for row in measured["activations"]}
    for model, mode, text in ROUNDED:
        for activations in kinds():
            if (model, text, activations) not in asked:
                row = {"model": model, "quant": mode, "text": text, "activations": activations}
                _keep(measured, "activations", row | perplexity_of(model, mode, text, activations))


def kinds() -> tuple[str, ...]:
    """The kinds of activations that differ on the device: float16 is float32 where there are no matrix units."""
    halves = resolve_activations(AUTO, open_device().limits) == FLOAT16
    return ACTIVATIONS if halves else (FLOAT32, INT8)


def perplexity_of(model: str, mode: Mode, text: str, activations: str) -> Row:
    """The result of `liveshape perplexity`, which converts the source if it is not in the cache."""
    from tests.export.perplexity import TEXTS as FOLDER

    command = [sys.executable, "-m", "liveshape", "perplexity"]
    with export.source_of(model) as source:
        command += [str(source), str(FOLDER / f"{text}.txt"), "-c", str(WINDOW), "--quant", mode, "--json"]
        command += ["--activations", activations]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {key: found[key] for key in ("perplexity", "counted", "context", "device")}


def _keep(measured: dict[str, list[Row]], kind: str, row: Row) -> None:
    print(row, flush=True)
    measured[kind].append({key: round(each, 4) if isinstance(each, float) else each for key, each in row.items()})
    measured["exports"].sort(key=lambda each: EXPORTS.index((each["model"], each["quant"])))
    order = [(text, mode) for text in TEXTS for mode in RECIPES]
    measured["perplexities"].sort(key=lambda each: order.index((each["text"], each["quant"])))
    rounded = [(model, text) for model, _, text in ROUNDED]
    measured["activations"].sort(key=lambda each: (rounded.index((each["model"], each["text"])), each["activations"]))
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    PAGE.write_text(page(measured))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--again", action="store_true", help="measure what was measured before as well")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    nothing: dict[str, list[Row]] = {"exports": [], "perplexities": [], "activations": []}
    measured = nothing if options.again or not MEASURED.exists() else nothing | json.loads(MEASURED.read_text())
    if not options.page:
        measure(measured)
    else:
        PAGE.write_text(page(measured))


if __name__ == "__main__":
    main()
