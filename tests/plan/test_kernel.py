"""A .wgsl file is the only declaration of its bindings, Params and constants. No GPU."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from liveshape.errors import PlanError, UnsupportedError
from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.elements import padded, storage_bytes
from liveshape.graph.limits import binding_parts
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel, specialize
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState

SOURCE = """
// T: f32, f16
override WG: u32 = 128;
override OP: u32 = 0;
struct Params {
    count: u32, // a comment: not a field
    scale: f32,
    offsets: vec2<i32>,
    sizes: array<vec4<u32>, 2>,
    last: i32,
}
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;
@compute @workgroup_size(WG)
fn main() { out[ids[x_of(0u)]] = V(x[ids[0u] + 1u]); }
"""
VALUES = {"count": 7, "scale": 0.5, "offsets": (-1, 2), "sizes": (1, 2, 3), "last": -9}


def kernel() -> Kernel:
    return Kernel.parse("sample", SOURCE)


def tensors(
    dtype: str = "float32", ids: str = "int32", numel: int = 64, limits: Limits | None = None
) -> tuple[LiveTensor, ...]:
    """The live tensors of a dispatch, each in a block of its own."""
    found = []
    for name, kind, count in (("out", dtype, numel), ("x", dtype, numel), ("ids", ids, 4)):
        made = LiveTensor(Tensor(name, kind, (count,)), bytearray())
        nbytes = padded(storage_bytes(kind, count))
        made.bindings = binding_parts(nbytes, nbytes, limits or Limits())
        found.append(made)
    return tuple(found)


def test_the_file_declares_everything() -> None:
    sample = kernel()
    assert [(b.name, b.writes, b.element, b.vector) for b in sample.bindings] == [
        ("out", True, "T", "V"),
        ("x", False, "T", "V"),
        ("ids", False, "i32", ""),
    ]
    assert list(sample.fields) == ["count", "scale", "offsets", "sizes", "last"]
    assert sample.group_size == 128


def test_params_follow_the_uniform_layout_of_wgsl() -> None:
    packed = kernel().pack(VALUES)
    assert packed == struct.pack("<Ifii8Ii12x", 7, 0.5, -1, 2, 1, 2, 3, 0, 0, 0, 0, 0, -9)
    assert kernel().param_bytes == len(packed) == 64


def test_one_source_serves_every_dtype_and_width() -> None:
    sample, limits = kernel(), Limits()
    single = specialize(sample(*tensors(), threads=1, VEC=1, **VALUES), limits)
    wide = specialize(sample(*tensors("float16"), threads=1, VEC=4, OP=3, **VALUES), limits)
    assert "alias T = f32;" in single.source
    assert "enable f16" not in single.source
    assert "alias V = T;" in single.source
    assert wide.source.startswith("enable f16;")
    assert "alias V = vec4<T>;" in wide.source
    assert "const OP: u32 = 3u;" in wide.source
    assert "alias T_math = f32;" in wide.source
    assert specialize(sample(*tensors(), threads=9, VEC=1, **VALUES), limits) is single


def test_workgroups_are_clamped_to_the_device() -> None:
    sample = kernel()
    small = specialize(sample(*tensors(), threads=1, **VALUES), Limits(max_invocations=100))
    assert small.group_size == 64
    assert "const WG: u32 = 64u;" in small.source


def test_halves_widen_where_the_device_has_none() -> None:
    sample = kernel()
    limits = Limits(half=False)
    wide = specialize(sample(*tensors("float16"), threads=1, **VALUES), limits)
    assert "alias T = f32;" in wide.source


def test_bindings_above_the_limit_are_split_into_segments() -> None:
    sample = kernel()
    limits = Limits(max_binding_bytes=100)  # segments of 64 bytes: sixteen f32 elements
    split = specialize(sample(*tensors(numel=40, limits=limits), threads=1, VEC=1, **VALUES), limits)
    assert split.segments == (3, 3, 1)
    assert split.writes == (True, True, True, False, False, False, False)
    assert "out_put(ids[x_of(0u)], V(x_at(ids[0u] + 1u));" in split.source.replace(
        "V(x_at(ids[0u] + 1u)));", "V(x_at(ids[0u] + 1u));"
    )
    assert "case 1u: { return x_1[i & 15u]; }" in split.source
    assert "i >> 4u" in split.source
    with pytest.raises(UnsupportedError, match="would bind 9 buffers"):
        specialize(sample(*tensors(numel=64, limits=limits), threads=1, VEC=1, **VALUES), limits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "has no parameter colour"),
        ({"count": None}, "needs count"),
        ({"sizes": tuple(range(9))}, "sizes holds 8 numbers, 9 were given"),
    ],
)
def test_wrong_names_are_errors(change: dict[str, object], message: str) -> None:
    values = {name: value for name, value in {**VALUES, **change}.items() if value is not None}
    with pytest.raises(PlanError, match=message):
        _use(values)


def _use(values: dict[str, object]) -> None:
    sample = kernel()
    specialize(sample(*tensors(), threads=1, **values), Limits())
    sample.pack(values)


def test_wrong_dtypes_and_counts_are_errors() -> None:
    sample = kernel()
    with pytest.raises(UnsupportedError, match=r"takes f32 or f16 for out, not int32 \(out\)"):
        specialize(sample(*tensors("int32"), threads=1, **VALUES), Limits())
    with pytest.raises(UnsupportedError, match=r"takes i32 for ids, not float32"):
        specialize(sample(*tensors(ids="float32"), threads=1, **VALUES), Limits())
    with pytest.raises(PlanError, match=r"binds \(out, x, ids\), 2 tensors were given"):
        specialize(sample(*tensors()[:2], threads=1, **VALUES), Limits())
    with pytest.raises(PlanError, match="needs either groups=, threads= or cooperative_units="):
        specialize(sample(*tensors(), **VALUES), Limits())
    with pytest.raises(PlanError, match="needs UNIT_THREADS= with cooperative_units="):
        specialize(sample(*tensors(), cooperative_units=3, **VALUES), Limits())


def test_halves_are_bound_as_words_where_the_file_says_so() -> None:
    source = SOURCE.replace("ids: array<i32>", "ids: array<vec4<u32>>")
    words = Kernel.parse("sample", source.replace("// T:", "// words ids\n// T:"))
    bound = tensors(ids="float16")
    assert "ids: array<vec4<u32>>" in specialize(words(*bound, threads=1, **VALUES), Limits()).source
    for kernel, ids, limits in (
        (words, "float32", Limits()),
        (words, "float16", Limits(half=False)),  # where they are stored as floats
        (Kernel.parse("sample", source), "float16", Limits()),
    ):
        with pytest.raises(UnsupportedError, match="takes u32 for ids"):
            specialize(kernel(*tensors(ids=ids), threads=1, **VALUES), limits)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@binding(1)", "@binding(5)", "numbered 0, 1, 2"),
        ("array<i32>;", "atomic<i32>;", "binding ids must be array"),
        ("scale: f32", "scale: f16", "must be made of u32, i32 or f32"),
        ("fn main()", "fn ids_at() {}\nfn main()", "ids_at is what a split binding ids is read through"),
    ],
)
def test_a_bad_file_is_refused_at_import(old: str, new: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Kernel.parse("sample", SOURCE.replace(old, new))


def test_variants_that_live_values_choose_come_together() -> None:
    sample = Kernel.parse("sample", "// live VEC: 1, 2, 4\n" + SOURCE)
    one = specialize(sample(*tensors(), **VALUES, VEC=2, OP=3, groups=1), Limits())
    assert [dict(other.constants)["VEC"] for other in one.siblings] == [1, 2, 4]
    assert {dict(other.constants)["OP"] for other in one.siblings} == {"3u"}
    four = specialize(sample(*tensors(), **VALUES, VEC=4, OP=3, groups=1), Limits())
    assert four is one.siblings[2], "the one that a dispatch will ask for"
    assert not specialize(kernel()(*tensors(), **VALUES, VEC=2, groups=1), Limits()).siblings


@pytest.mark.parametrize(
    ("limits", "unit_threads", "groups"),
    [(Limits(), 64, 25), (Limits(max_cooperating_threads=8), 8, 4), (Limits(max_invocations=16), 16, 100)],
)
def test_as_many_threads_cooperate_on_a_unit_as_the_device_gains_by(
    limits: Limits, unit_threads: int, groups: int
) -> None:
    """A hundred units of 64 threads, in workgroups of 256 or less."""
    source = SOURCE.replace("override OP: u32 = 0;", "override UNIT_THREADS: u32 = 1;").replace(
        "WG: u32 = 128", "WG: u32 = 256"
    )
    sample = Kernel.parse("sample", source)
    live = PlanState(compile(Graph("g", (), (), (), ()), limits))
    step = live._step(sample(*tensors(), cooperative_units=100, UNIT_THREADS=64, **VALUES), Kernel.pack)
    assert step is not None
    variant, _, _, grid = step
    assert (variant.unit_threads, dict(variant.constants)["UNIT_THREADS"]) == (unit_threads, f"{unit_threads}u")
    assert grid == (groups, 1, 1)


def test_a_choice_decides_on_bindings() -> None:
    plain, other = Kernel.load("attention/rotary"), Kernel.load("attention/rotary", VALUES="to_cache")
    assert [binding.name for binding in other.bindings] == [
        *(each.name for each in plain.bindings),
        "values",
        "value_out",
    ]
    assert (plain.name, other.name) == ("attention/rotary", "attention/rotary+to_cache")


def test_subgroups_have_a_text_of_their_own_where_the_kernel_wants_it() -> None:
    source = SOURCE.replace("fn main()", "#if SUBGROUP\nfn shuffled() {}\n#endif\nfn main()")
    never = Kernel.parse("sample", source)
    wanted = Kernel.parse("sample", "override SUBGROUP: u32 = 0;\n" + source)
    limits = Limits(subgroup=32)
    assert (never.has_subgroup_text, wanted.has_subgroup_text) == (False, True)
    assert "shuffled" not in specialize(never(*tensors(), threads=1, **VALUES), limits).source
    found = specialize(wanted(*tensors(), threads=1, **VALUES), limits).source
    assert "fn shuffled" in found
    assert "const SUBGROUP: u32 = 32u;" in found
    without = specialize(wanted(*tensors(), threads=1, **VALUES), Limits()).source
    assert "shuffled" not in without
    assert "SUBGROUP" not in without


def test_a_word_of_a_comment_declares_nothing() -> None:
    plain, commented = kernel(), Kernel.parse("sample", "// V of f16\n" + SOURCE)
    assert (commented.vectored, commented.needs_half) == (plain.vectored, plain.needs_half)


def test_indices_are_checked_unless_the_file_says_why_not() -> None:
    assert not kernel().unchecked
    assert not Kernel.parse("sample", "// unchecked:\n" + SOURCE).unchecked
    assert Kernel.parse("sample", "// unchecked: every index is a constant.\n" + SOURCE).unchecked


FILES = sorted(Path(str(resources.files("liveshape.kernels.wgsl"))).rglob("*.wgsl"))


def test_every_shipped_kernel_is_read_and_named_by_its_file() -> None:
    assert FILES
    for path in FILES:
        text = path.read_text("utf-8")
        if "@binding(0)" in text and ("@compute" in text or "#include common/each" in text):
            name = f"{path.parent.name}/{path.stem}"
            assert Kernel.load(name).bindings
            assert Kernel.load(name).name == name


def test_importing_the_operators_reads_no_kernel_and_all_their_choices_are_declared() -> None:
    script = """
import gc, liveshape.ops
from liveshape.kernels import Kernel
kernels = [each for each in gc.get_objects() if isinstance(each, Kernel)]
assert len(kernels) > 150
assert not [each.file for each in kernels if "text" in vars(each)]
assert all(each.bindings for each in kernels)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_choice_that_no_file_has_is_named_at_the_first_use() -> None:
    kernel = Kernel.load("q4/gemv", EPILOGUE="nothing")
    with pytest.raises(PlanError, match="EPILOGUE"):
        _ = kernel.bindings
    with pytest.raises(AttributeError):
        _ = kernel.nothing  # type: ignore[attr-defined]


# Words that WGSL keeps for itself; naga lets some of them pass, browsers do not.
RESERVED = frozenset(
    """
    NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become cast catch class
    co_await co_return co_yield coherent column_major common compile compile_fragment concept const_cast consteval
    constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit export
    extends extern external fallthrough filter final finally friend from fxgroup get goto groupshared highp impl
    implements import inline instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut
    mutable namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null nullptr of
    operator package packoffset partial pass patch pixelfragment precise precision premerge priv protected pub public
    readonly ref regardless register reinterpret_cast require resource restrict self set shared sizeof smooth snorm
    static static_assert static_cast std subroutine super target template this thread_local throw trait try type
    typedef typeid typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with
    writeonly yield
    """.split()
)


def test_no_kernel_uses_a_reserved_word_as_a_name() -> None:
    for path in FILES:
        text = re.sub(r"//[^\n]*", "", path.read_text("utf-8"))
        declared = re.findall(r"\b(?:let|var(?:<\w+>)?|const|override|fn|struct|alias)\s+(\w+)|\b(\w+)\s*:", text)
        names = {name for pair in declared for name in pair if name}
        assert not names & RESERVED, f"{path.name}: {sorted(names & RESERVED)}"
