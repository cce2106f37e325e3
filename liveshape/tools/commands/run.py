"""`liveshape run`: run one method on given or random inputs; print output statistics and latency."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import prod
from statistics import median
from typing import Any

import numpy as np

from liveshape.disk import open_file
from liveshape.errors import FormatError, InputError
from liveshape.export.runnable import Conversion
from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.formats.signature import Signature
from liveshape.metadata import TensorInfo, shape_text
from liveshape.model import Model
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import load_program
from liveshape.run.array_files import read_arrays
from liveshape.run.arrays import file_dtype, numpy_dtype
from liveshape.run.legal import check_call
from liveshape.tools.console import check_writable, counted, print_json, print_table, upload_bar
from liveshape.tools.model_argument import runnable_model

_SHAPE = re.compile(r"[0-9]{1,18}(x[0-9]{1,18})*")
_SCALAR = "scalar"
# Random integers are mostly token ids, indices and positions: small ones are in range of every table.
_INTEGERS_BELOW = 8
_NUMBERS: Mapping[str, Any] = {"bool": False, "float": 0.0, "int": 0, "NoneType": None}
_MAGIC = b"\x93NUMPY"  # the first bytes of a .npy file


def run(
    program: str,
    *,
    data: Sequence[str] = (),
    method: str = "forward",
    device: str | None = None,
    input_shapes: str | None = None,
    input_files: Sequence[str] | None = None,
    seed: int = 0,
    repeat: int = 1,
    output_file: str | None = None,
    show: str = "summary",
    as_json: bool = False,
    strict: bool = False,
    activations: str = "float32",
    conversion: Conversion | None = None,
) -> int:
    """Run a method `repeat` times and print the outputs of the last run; exit code 0 if it ran.

    `strict` refuses operators that would fall back to the host. A checkpoint that is no program yet is converted as
    `conversion` says.

    Example: `run("model.pte", input_shapes="1x7x64", repeat=10)`.
    """
    _check_output_file(output_file)
    target = CompileTarget(device, strict=strict, activations=activations)
    with (
        runnable_model(program, conversion or Conversion()) as path,
        upload_bar() as progress,
        load_program(target, program_file(path), data_path=list(data), progress=progress) as opened,
    ):
        # Refuse a wrong shape before weights are uploaded.
        inputs = make_inputs(opened.inputs(method), input_shapes, input_files, seed)
        inputs = legal(inputs, opened.file.signatures.get(method), given=bool(input_files))
        start = time.perf_counter()
        model = Model(target, opened, method)
        loaded = time.perf_counter() - start
        outputs: tuple[Any, ...] = ()
        milliseconds: list[float] = []
        for _ in range(repeat):
            start = time.perf_counter()
            result = model(*inputs)
            milliseconds.append(1e3 * (time.perf_counter() - start))
            outputs = result if isinstance(result, tuple) else (result,)
        if output_file is not None:
            _save(output_file, outputs)
        if as_json:
            print_json(_document(program, model, inputs, outputs, loaded, milliseconds, show))
        else:
            _print(model, inputs, outputs, loaded, milliseconds, show)
            if output_file is not None:
                print(f"outputs written to {output_file}")
    return 0


# Inputs


def make_inputs(
    takes: Sequence[TensorInfo], shapes: str | None, files: Sequence[str] | None, seed: int = 0
) -> list[Any]:
    """Inputs of a call: from files, random at the given shapes, or random at the upper bounds.

    Example: `make_inputs(model.inputs, "1x7x64,1", None)`.
    """
    wanted = parse_shapes(shapes, takes) if shapes is not None else [info.bounds for info in takes]
    if files:
        inputs = _from_files(files, takes, wanted)
        for value, info, shape in zip(inputs, takes, wanted, strict=True):
            if shapes is not None and info.is_tensor and np.shape(value) != shape:
                raise InputError(
                    f"--input-shapes {shapes}: {info.name} is {shape_text(shape)} there, and "
                    f"{shape_text(np.shape(value))} by --inputs; leave one of both out"
                )
        return inputs
    if seed < 0:
        raise InputError(f"--seed {seed}: a seed is 0 or above")
    random = np.random.default_rng(seed)
    return [_random(info, shape, random) for info, shape in zip(takes, wanted, strict=True)]


def legal(inputs: list[Any], signature: Signature | None, given: bool) -> list[Any]:
    """Check inputs against the signature; random inputs take the values that the export fixed.

    Example: `legal(inputs, program.file.signatures.get("forward"), given=False)`.
    """
    if signature is None:
        return inputs
    if not given:
        pairs = zip(inputs, signature.inputs, strict=True)
        inputs = [taken.value if taken.fixed else value for value, taken in pairs]
    pairs = zip(inputs, signature.inputs, strict=True)
    check_call(signature, [value if taken.sizes is None else np.shape(value) for value, taken in pairs])
    return inputs


def parse_shapes(text: str, takes: Sequence[TensorInfo]) -> list[tuple[int, ...]]:
    """Parse `--input-shapes`: one shape per input from `1x7x64,1`; errors show the expected inputs.

    >>> parse_shapes("1x7", [TensorInfo("input 0", "int64", (1, 9), dynamic=True)])
    [(1, 7)]
    """
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if len(items) != len(takes):
        raise InputError(_explain(text, f"{counted(len(items), 'shape')} for {counted(len(takes), 'input')}", takes))
    shapes = []
    for item, info in zip(items, takes, strict=True):
        if item != _SCALAR and not _SHAPE.fullmatch(item):
            raise InputError(_explain(text, f"{item!r} is not a shape", takes))
        shape = () if item == _SCALAR else tuple(int(size) for size in item.split("x"))
        if len(shape) != len(info.bounds):
            ranks = f"rank {len(shape)} was given, {len(info.bounds)} is needed"
            raise InputError(_explain(text, f"{item} does not fit {info}: {ranks}", takes))
        fits = all(size <= most for size, most in zip(shape, info.bounds, strict=True))
        if not fits or (not info.dynamic and shape != info.bounds):
            raise InputError(_explain(text, f"{item} does not fit {info}", takes))
        shapes.append(shape)
    return shapes


def _explain(text: str, problem: str, takes: Sequence[TensorInfo]) -> str:
    listing = "".join(f"\n  {info}" for info in takes) or "\n  nothing"
    example = ",".join(shape_text(info.bounds) for info in takes)
    advice = f"for example: --input-shapes {example}" if takes else "leave --input-shapes out"
    return (
        f"--input-shapes {text!r}: {problem}\n"
        f"write one shape per input, sizes joined by x, inputs by commas, {_SCALAR} for no dimensions\n"
        f"this method takes:{listing}\n{advice}"
    )


def _random(info: TensorInfo, shape: tuple[int, ...], random: np.random.Generator) -> Any:
    if not info.is_tensor:
        if info.dtype not in _NUMBERS:
            raise InputError(
                f"{info.name} is {info.dtype}, of which there is no random one; call the program from Python"
            )
        return _NUMBERS[info.dtype]
    try:
        if info.dtype == "bool":
            return random.random(shape) < 0.5
        if info.dtype in ("bfloat16", "float16", "float32", "float64"):
            return random.standard_normal(shape).astype(numpy_dtype(info.dtype))
        few = prod(shape) <= 1
        return np.asarray(random.integers(0, 1 if few else _INTEGERS_BELOW, shape)).astype(info.dtype)
    except TypeError as error:
        raise InputError(f"{info}: there are no random numbers of this dtype; give --inputs") from error
    except (MemoryError, ValueError) as error:
        raise InputError(f"{info}: {error}; give smaller --input-shapes") from error


def _from_files(files: Sequence[str], takes: Sequence[TensorInfo], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    found: list[Any] = []
    places = {info.name: place for place, info in enumerate(takes)}
    named: dict[int, Any] = {}
    for path in (name for item in files for name in item.split(",") if name):
        name, equals, rest = path.partition("=")
        if equals and name in places and not os.path.exists(path):
            if places[name] in named:
                raise InputError(f"--inputs {path}: {name} is given twice")
            place = places[name]
            (named[place],) = _from_files([rest], takes[place : place + 1], shapes[place : place + 1])
            continue
        if equals and name.isidentifier() and not os.path.exists(path):
            raise InputError(f"--inputs {path}: no input is called {name!r}; there are {', '.join(places)}")
        suffix = os.path.splitext(path)[1].lower()
        if suffix == ".npy":
            with open_file(path) as file:
                head = file.read(len(_MAGIC))
            if head != _MAGIC:
                raise InputError(f"{path} is no .npy file: it begins with {head!r}; numpy.save writes one")
        try:
            if suffix == ".npy":
                # Memory-mapped: a header that promises more than the file holds allocates nothing.
                found.append(np.array(np.load(path, mmap_mode="r", allow_pickle=False)))
            elif suffix == ".npz":
                found.extend(_from_archive(path, takes))
            elif suffix == ".bin" and len(found) < len(takes):
                found.append(_from_bytes(path, takes[len(found)], shapes[len(found)]))
            else:
                raise InputError("inputs are .npy, .npz or .bin files, one per input")
        except (FormatError, OSError):
            raise
        except Exception as error:  # numpy raises many kinds, and none names the file
            raise InputError(f"{path}: {str(error) or type(error).__name__}") from error
    if named:
        rest_of = iter(found)
        order = range(len(takes))
        found = [named[place] if place in named else next(rest_of, None) for place in order] + list(rest_of)
    if len(found) != len(takes) or any(value is None for value in found):
        listing = "".join(f"\n  {info}" for info in takes)
        raise InputError(f"--inputs gives {counted(len(found), 'array')}, this method takes {len(takes)}:{listing}")
    return found


def _from_archive(path: str, takes: Sequence[TensorInfo]) -> list[Any]:
    """Load the arrays of a .npz whose unpacked size is bounded by the method's inputs."""
    most = sum(prod(info.bounds) * max(ITEM_SIZES.get(info.dtype, 8), 8) for info in takes)
    return list(read_arrays(path, most=most).values())


def _from_bytes(path: str, info: TensorInfo, shape: tuple[int, ...]) -> Any:
    """Load raw elements of a .bin, whose count must match the shape."""
    if not info.is_tensor:
        raise InputError(f"{info.name} is a number; give it as a .npy")
    expected, size = prod(shape) * file_dtype(info.dtype).itemsize, os.path.getsize(path)
    if size != expected:
        raise InputError(f"{size} bytes, {info.dtype} of {shape_text(shape)} takes {expected}; give --input-shapes")
    return np.fromfile(path, file_dtype(info.dtype)).reshape(shape)


# Outputs


def _check_output_file(path: str | None) -> None:
    if path is not None and os.path.splitext(path)[1].lower() not in (".npy", ".npz"):
        raise InputError(f"--output-file {path}: write .npz for all outputs, .npy for a single one")
    check_writable("--output-file", path)


def _save(path: str, outputs: Sequence[Any]) -> None:
    if path.lower().endswith(".npz"):
        named: dict[str, Any] = {f"output_{position}": np.asarray(value) for position, value in enumerate(outputs)}
        np.savez(path, **named)
    elif len(outputs) == 1:
        np.save(path, np.asarray(outputs[0]))
    else:
        raise InputError(f"--output-file {path}: a .npy holds one array, there are {len(outputs)}; write a .npz")


def summary(name: str, value: Any) -> dict[str, Any]:
    """Statistics of an output; min, max and mean are of its finite values.

    >>> summary("output 0", np.array([1.0, np.nan]))["nan"]
    1
    """
    array = np.asarray(value)
    kind = str(array.dtype) if isinstance(value, np.ndarray) else type(value).__name__
    document: dict[str, Any] = {"name": name, "dtype": kind, "shape": list(array.shape)}
    if array.dtype.kind not in "biuf":
        return {**document, "value": str(value)}
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    for key in ("min", "max", "mean"):
        document[key] = float(getattr(finite, key)()) if finite.size else None
    return {**document, "nan": int(np.isnan(wide).sum()), "inf": int(np.isinf(wide).sum())}


def _document(
    program: str,
    model: Model,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    loaded: float,
    milliseconds: list[float],
    show: str,
) -> dict[str, Any]:
    rows = [summary(f"output {position}", value) for position, value in enumerate(outputs)]
    if show == "all":
        for row, value in zip(rows, outputs, strict=True):
            row["values"] = _plain(np.asarray(value).tolist())
    return {
        "program": program,
        "method": model.name,
        "device": _device_name(model),
        "inputs": [{"dtype": str(np.asarray(each).dtype), "shape": list(np.shape(each))} for each in inputs],
        "outputs": rows if show != "none" else [],
        "load_milliseconds": 1e3 * loaded,
        "milliseconds": milliseconds,
        "memory": asdict(model.memory),
    }


def _plain(values: Any) -> Any:
    """Nested lists with NaN and infinity replaced, which JSON lacks."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return None if isinstance(values, float) and not np.isfinite(values) else values


def _print(
    model: Model, inputs: Sequence[Any], outputs: Sequence[Any], loaded: float, milliseconds: list[float], show: str
) -> None:
    shapes = ", ".join(shape_text(np.shape(value)) for value in inputs) or "no inputs"
    print(f"{model.name}({shapes}) on {_device_name(model) or 'no device: its outputs are constants'}")
    if show != "none":
        rows = [summary(f"output {position}", value) for position, value in enumerate(outputs)]
        print_table("outputs", ("name", "dtype", "shape", "min", "max", "mean", ""), [_cells(row) for row in rows])
    if show == "all":
        for position, value in enumerate(outputs):
            text = np.array2string(np.asarray(value), threshold=1 << 62)
            print(f"output {position}:\n{text}")
    first, rest = milliseconds[0], milliseconds[1:]
    again = f", then {median(rest):.2f} ms (median of {len(rest)}), best {min(rest):.2f} ms" if rest else ""
    print(f"loaded in {1e3 * loaded:.0f} ms; first run {first:.2f} ms{again}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if "value" in row:
        return row["name"], row["dtype"], "", "", "", "", row["value"]
    numbers = tuple("-" if row[key] is None else f"{row[key]:.6g}" for key in ("min", "max", "mean"))
    trouble = ", ".join(f"{row[key]} {key}" for key in ("nan", "inf") if row[key])
    return row["name"], row["dtype"], shape_text(row["shape"]), *numbers, trouble


def _device_name(model: Model) -> str | None:
    return model.device.name if model.memory.total else None
