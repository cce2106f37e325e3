"""docs/performance.md and its plots, from what bench.peers, bench.rows and bench.against measured: no number is typed.

Run: python -m bench.performance [FILE.json ...] [--page docs/performance.md]

Without files it takes all of docs/performance; the plots go there, too.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import rows as rows_bench
from liveshape.tools.commands.devices import rate_text
from liveshape.tools.console import size_text
from liveshape.tools.measuring.plot import lines

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
FOLDER = PAGE.parent / "performance"
SHAPES = ("1b", "8b", "1b-q4_k_m", "1b-q8_0", "135m", "tiny", "image networks")
NOT_YET = "not measured yet"

Document = Mapping[str, Any]

HEAD = """\
# Performance

Written by `python -m bench.performance` from the files in docs/performance, which the commands named beside the tables
wrote. Language models have the shape of a Llama of that size and random 4-bit weights, group size 32; greedy decoding,
end to end, wall-clock time. `pp512` is prefill of 512 tokens, `tg128` decode of 128, `@ d512` with 512 in the KV cache.
"""

TAIL = """\
## Precision

- `activations="float32"`, the default of programs: activations of 4- and 8-bit layers stay float32. Weights are what
  the file has; accumulation is float32.
- `activations="float16"`: inputs of products may be rounded to float16 where the device has matrix units (tensor
  cores), with sums in float32; without them it is float32. Language models take it there by themselves (`auto`).
- `activations="int8"`, opt-in: activations of 4- and 8-bit layers are quantized to int8 in groups of 32, each with a
  scale of its own. Integer dot products are exact; sums over groups are float32. [models.md](models.md) has the cost in
  perplexity.
- `half_cache=True`, opt-in: a float16 KV cache. llama.cpp's is float16 by default.
- `torch CUDA` computes in float32, `torch CUDA, TF32` with 10 bits of each factor, torch's default for convolutions.

## Tensor cores

Only `liveshape float16` has them here, through Dawn: wgpu-native 29 has only 8 x 8 float32 matrices, behind a feature
that its C API lacks. float32 and int8 run through wgpu, as by default, since decode is faster there;
[dawn.md](dawn.md) has more.

## How to measure

- `liveshape bench --shape 1b -p 512 -n 128 -d 0,4096`: tokens/s; a folder or a `.pte` in place of `--shape`.
- `liveshape profile --shape 1b -p 512 -n 32`: GPU time by kernel, operator and layer, and how close each is to the peak
  of the adapter. The overhead of timestamps is subtracted.
- `liveshape devices --measure`: these peaks, of bandwidth and of arithmetic.
- `python -m bench.peers --shape 1b --llamacpp FOLDER --networks FOLDER --out docs/performance/NAME.json`: the tables.
- `python -m bench.rows --shape 1b --out docs/performance/NAME.json`: a call of many rows beside a call of one.
- `python -m bench.against COMMIT --out docs/performance/NAME.json`: this tree beside an older one.

Some GPUs lower their clocks when idle, so each measurement follows 0.3 seconds of warm-up.
"""


def page(documents: Sequence[Document]) -> str:
    """The text of docs/performance.md.

    >>> page([]).count("not measured yet")
    1
    """
    parts = [HEAD]
    if not documents:
        parts.append(f"## Adapters\n\nNone: {NOT_YET}.\n")
    for adapter in sorted({document["device"] for document in documents}):
        parts.append(f"## {adapter}\n")
        parts += _adapter([document for document in documents if document["device"] == adapter])
    return "\n".join([*parts, TAIL])


def plots(documents: Sequence[Document]) -> dict[str, str]:
    """The plots by file name: decode speed over context, and the time of a call over its rows.

    >>> plots([])
    {}
    """
    found = {}
    for document in documents:
        if document["kind"] == "against":
            continue
        if document["kind"] == "rows":
            found[_file("rows", document)] = rows_bench.drawn(document)
        elif any(len(points) > 1 for points in _decode(document).values()):
            title = f"{document['model']} on {document['device']}"
            found[_file("decode", document)] = lines(title, "tokens/s", "tokens of context", _decode(document))
    return found


def tables(document: Document) -> str:
    """The results of a run of bench.peers, as Markdown."""
    parts = []
    speeds, rows, vision = document["speeds"], document["rows"], document["vision"]
    if speeds:
        tests = list(dict.fromkeys(test for found in speeds.values() for test in found))
        cells = [[test, *(_speed(found.get(test)) for found in speeds.values())] for test in tests]
        parts.append(_table([f"{document['model']}, tokens/s", *speeds], cells))
        parts += [_dropped(name, tests) for name, tests in document.get("dropped", {}).items()]
    if rows:
        counts = sorted({int(count) for found in rows.values() for count in found})
        cells = [[str(count), *(_cost(found, count) for found in rows.values())] for count in counts]
        head = f"{document['model']}, ms per call, by rows"
        note = (
            f"Rows are tokens of one sequence at a depth of {document['rows_depth']}; for llama.cpp they are a batch "
            "of sequences of that depth, one token each.\n"
        )
        parts += [_table([head, *rows], cells), note]
    if vision:
        sides = list(dict.fromkeys(side for found in vision.values() for side in found))
        cells = [[name, *(_call(found.get(side)) for side in sides)] for name, found in vision.items()]
        parts.append(_table(["one 224 x 224 image, ms", *sides], cells))
    parts += [f"{name}: not here: {why}\n" for name, why in document["absent"].items()]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    cache = ", float16 cache" if document["half_cache"] else ""
    cores = f", on {document['cores']} cores of the host" if "cores" in document else ""
    parts.append(
        f"liveshape {document['liveshape']}{cache}, {versions}{cores}; {document['test_time']}; "
        f"`{document['command']}`\n"
    )
    return "\n".join(parts)


def _dropped(name: str, tests: Mapping[str, float]) -> str:
    """What a peer reached in its first run after a start, which the table is without."""
    reached = ", ".join(f"{test} {speed:,.0f}" for test, speed in tests.items())
    return f"{name} is measured warm; its first run after a start, dropped: {reached} tokens/s.\n"


def _adapter(documents: Sequence[Document]) -> Iterator[str]:
    for shape in SHAPES:
        peers = [each for each in documents if each["kind"] == "peers" and each["model"] == shape]
        if not peers:
            continue
        yield f"### {shape}\n"
        for document in peers:
            yield tables(document)
            yield from _limit(document)
        for document in (each for each in documents if each["model"] == shape):
            for name in plots([document]):
                yield f"![{name.removesuffix('.svg')}](performance/{name})\n"
            if document["kind"] == "rows":
                yield f"liveshape {document['liveshape']}; {document['test_time']}; `{document['command']}`\n"
    for document in (each for each in documents if each["kind"] == "against"):
        yield f"### Against {document['commit']}\n"
        yield f"The shipped model, prefill of {document['prompt']} tokens and decode of {document['tokens']}.\n"
        cells = [
            [key, f"{then:.3f}", f"{now:.3f}", f"{now / then:.2f}"] for key, (then, now) in document["best"].items()
        ]
        yield _table(["seconds, fastest run", "then", "now", "ratio"], cells)
        yield f"{document['test_time']}; `{document['command']}`\n"


def _limit(document: Document) -> Iterator[str]:
    for side, nbytes in document.get("token_bytes", {}).items():
        seconds, rate = nbytes / document["copy"], rate_text(document["copy"], "B/s")
        yield (
            f"Bandwidth limit, {side}: a token reads {size_text(nbytes)}, and a copy reaches {rate}: "
            f"{1e3 * seconds:.2f} ms, or {1 / seconds:,.0f} tokens/s.\n"
        )


def _decode(document: Document) -> dict[str, list[tuple[float, float]]]:
    """Decode speed in tokens/s over depth, for each side."""
    found: dict[str, list[tuple[float, float]]] = {}
    for side, speeds in document["speeds"].items():
        for test, (mean, _) in speeds.items():
            match = re.fullmatch(r"tg\d+(?: @ d(\d+))?", test)
            if match:
                found.setdefault(side, []).append((int(match[1] or 0), mean))
    return {side: sorted(points) for side, points in found.items()}


def _file(kind: str, document: Document) -> str:
    device = re.sub(r"\W+", "-", document["device"].lower()).strip("-")
    return f"{kind}-{document['model']}-{device}.svg"


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    ruler = ["---", *("---:" for _ in head[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ruler, *cells))


def _speed(found: Sequence[float] | None) -> str:
    if found is None:
        return "-"
    digits = 0 if found[0] >= 100 else 2
    return f"{found[0]:,.{digits}f} ± {found[1]:,.{digits}f}"


def _cost(costs: Mapping[Any, float], count: int) -> str:
    known = {int(rows): cost for rows, cost in costs.items()}
    return f"{known[count]:.2f} ({known[count] / known[min(known)]:.1f}x)" if count in known else "-"


def _call(found: Sequence[float] | None) -> str:
    return "-" if found is None else f"{found[0]:.2f} (off by {found[1]:.0e})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", type=Path, nargs="*", default=None)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    documents = read(options.files or sorted(FOLDER.glob("*.json")))
    options.page.write_text(page(documents), encoding="utf-8")
    folder = options.page.parent / "performance"
    for name, text in plots(documents).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def read(files: Sequence[Path]) -> list[Document]:
    """The results that these commands wrote."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


if __name__ == "__main__":
    main()
