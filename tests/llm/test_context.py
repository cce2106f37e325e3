"""The context as a choice of the load: logits are those of a file that was made for it, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape import ops
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.decoder.context_parameters import METHOD, ContextParameters
from liveshape.export.decoder.rope import Rotation, inverse_frequencies, rotary_tables
from liveshape.export.folder import Settings, export_folder
from liveshape.export.model.config import Quantization, RopeScaling
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.graph.sources import operators_of
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.program.context import checked_context, larger_context, with_context
from liveshape.llm.program.rotary_tables import resized_tables
from liveshape.llm.program.token_graph import at_positions
from liveshape.llm.sampling_settings import Sampling
from liveshape.ops import OPS
from tests.export.family_models import CONTEXT, MODELS, folder_of
from tests.support.llamas import Tiny, program

TINY = Tiny("context", quantization="4w")  # calls of 8 tokens, a context of 40
IDS = np.random.default_rng(3).integers(0, TINY.vocabulary, 300).tolist()
STORY = Path(__file__).parents[2] / "liveshape/demo/story"
PIECE = 8


def logits(model: LanguageModel, count: int) -> Any:
    """The logits of a text in calls of the same sizes, whatever the context is."""
    model.reset()
    rows = []
    for start in range(0, count, 5):
        model.prefill(IDS[start : min(start + 5, count)])
        rows.append(model.logits())
    return np.stack(rows)


@pytest.fixture(scope="module")
def usual() -> Iterator[LanguageModel]:
    with LanguageModel.load(program(TINY)) as model:
        yield model


@pytest.mark.parametrize("context", [3, 8, 9, 40, 113])
def test_any_context_gives_the_same_logits(usual: LanguageModel, context: int) -> None:
    with LanguageModel.load(program(TINY), max_context=context) as model:
        assert (model.max_context, model.max_seq_len, model.trained_context) == (context, 8, 40)
        both = min(context, 40)
        assert np.array_equal(logits(model, both), logits(usual, both))
        logits(model, context)
        with pytest.raises(InputError, match=f"the context holds {context}"):
            model.prefill([1])


def test_caches_take_what_the_context_needs(usual: LanguageModel) -> None:
    sizes = {}
    for context in (16, 80):
        with LanguageModel.load(program(TINY), max_context=context) as model:
            sizes[context] = model.memory.state
    a_token = usual.memory.state // 40
    assert sizes == {16: 16 * a_token, 80: 80 * a_token}


def test_the_shipped_model_takes_smaller_contexts_and_says_where_its_table_ends() -> None:
    with LanguageModel.load(STORY) as model, LanguageModel.load(STORY, max_context=300) as smaller:
        assert smaller.max_context == 300
        assert smaller.memory.state < model.memory.state
        assert np.array_equal(logits(smaller, 60), logits(model, 60))
    with pytest.raises(UnsupportedError, match=r"made for 512, and the rotary table .* ends at position 512; export"):
        LanguageModel.load(STORY, max_context=513)


@pytest.mark.parametrize("options", [{"half_cache": True}, {"activations": "int8"}])
def test_other_choices_of_a_load_meet_the_context(options: dict[str, Any]) -> None:
    with LanguageModel.load(program(TINY), **options) as model:
        expected = logits(model, 40)
    with LanguageModel.load(program(TINY), max_context=77, **options) as model:
        assert np.array_equal(logits(model, 40), expected)


def test_streams_lookahead_and_forks_go_on_beyond_the_file(usual: LanguageModel) -> None:
    usual.reset()
    short = list(usual.stream(IDS[:6], Sampling(), max_tokens=20))
    with LanguageModel.load(program(TINY), max_context=100) as model:
        plain = list(model.stream(IDS[:6], Sampling(), max_tokens=80))
        assert plain[:20] == short
        model.reset()
        assert list(model.stream(IDS[:6], Sampling(), max_tokens=80, lookahead="ngram")) == plain
        model.truncate(50)
        fork = model.fork()
        rows = []
        for each in (model, fork):
            each.prefill(IDS[:30])
            rows.append(each.logits())
        assert np.array_equal(rows[0], rows[1])


def test_a_saved_cache_is_restored_into_any_context_that_holds_it(usual: LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "text.cache"
    usual.reset()
    usual.prefill(IDS[:20])
    usual.save(file)
    usual.prefill(IDS[20:25])
    expected = usual.logits()
    for context in (25, 90):
        with LanguageModel.load(program(TINY), max_context=context) as model:
            model.restore(file)
            assert list(model.tokens) == IDS[:20]
            model.prefill(IDS[20:25])
            assert np.array_equal(model.logits(), expected)
    with LanguageModel.load(program(TINY), max_context=19) as model:
        with pytest.raises(
            InputError, match=r"holds 20 tokens, the context of this model is 19: load .*--max-context 20"
        ):
            model.restore(file)
        assert model.position == 0


# Every family


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def exported(folders: Path, name: str, context: int | None) -> Path:
    """A family's tiny model, for a context or for any."""
    out = folders / f"{name}-{context}"
    if not out.exists():
        source = folders / name
        if not source.exists():
            folder_of(source, MODELS[name])
        export_folder(open_folder(source), out, Settings(Quantization("none"), PIECE, context))
    return out


# Windows and two tables, tables that depend on the context, none: the rest are like one of these, in `make test-all`.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=() if name in ("gemma3", "phi4_mini", "gpt2") else pytest.mark.slow,
        )
        for name in MODELS
    ],
)
@pytest.mark.parametrize("context", [pytest.param(7, marks=pytest.mark.slow), 20, 100])
def test_a_family_is_what_its_export_for_that_context_is(folders: Path, name: str, context: int) -> None:
    if context > CONTEXT and name == "phi4_mini":
        context = 270  # it was trained for four times as many
    if context > CONTEXT and name == "gpt2":
        with pytest.raises(UnsupportedError, match=f"ends at position {CONTEXT}"):
            LanguageModel.load(exported(folders, name, None), max_context=context)
        return
    with LanguageModel.load(exported(folders, name, None), max_context=context) as model:
        assert model.max_context == context
        got = logits(model, min(context, CONTEXT + 30))
    asked = max(context, PIECE)
    with LanguageModel.load(exported(folders, name, asked)) as model:
        expected = logits(model, min(context, CONTEXT + 30))
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(("context", "masks"), [(9, False), (10, True), (None, True)])
def test_a_context_within_the_window_goes_without_masks(folders: Path, context: int | None, masks: bool) -> None:
    with LanguageModel.load(exported(folders, "mistral", None), max_context=context) as model:
        nodes = model.engine.executor.plan.graph.nodes
        names = {name for node in nodes for name in operators_of(node)}
    assert ("aten.lt.Scalar" in names) is masks
    assert ("aten.arange.start_step" in names) is masks


def test_a_file_without_masks_ends_at_the_window(folders: Path) -> None:
    path = exported(folders, "mistral", 8)
    with LanguageModel.load(path, max_context=9) as model:
        assert (model.max_context, model.trained_context) == (9, 9)
    with pytest.raises(UnsupportedError, match=r"no masks for the model's sliding window of 9 tokens; export .* 10"):
        LanguageModel.load(path, max_context=10)


def test_caches_of_another_rotation_are_of_another_program(folders: Path, tmp_path: Path) -> None:
    path, file = exported(folders, "phi4_mini", None), tmp_path / "text.cache"
    with LanguageModel.load(path, max_context=70) as model:  # beyond the original 64: the long factors, as the file's
        model.prefill(IDS[:10])
        model.save(file)
    with LanguageModel.load(path) as model:
        model.restore(file)
    with LanguageModel.load(path, max_context=60) as model, pytest.raises(InputError, match="of another program"):
        model.restore(file)


# Tables


def test_frequencies_that_another_machine_rounded_otherwise() -> None:
    """A unit in the last place of each, as other libraries of mathematics have it: far off at late positions."""
    rotation, rows = Rotation(16, 10000.0), 4000
    angles = np.outer(np.arange(rows, dtype=np.float32), np.nextafter(inverse_frequencies(rotation), np.float32(2)))
    both = np.concatenate([angles, angles], axis=1).astype(np.float32)
    stored = [np.cos(both), np.sin(both)]
    assert np.abs(stored[1] - rotary_tables(rotation, rows)[1]).max() > 1e-4
    graph, tables = _rotary(stored, "float32")
    made = resized_tables(graph, 5000, 5000, ContextParameters(5000, rotation))
    assert all(made[table].max_shape == (5000, 16) for table in tables)  # type: ignore[attr-defined]
    for other in (9999.0, 10010.0, 1e6):  # however long the table is
        with pytest.raises(UnsupportedError):
            resized_tables(graph, 5000, 5000, ContextParameters(5000, Rotation(16, other)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_of_the_file_stay_and_more_follow(dtype: str) -> None:
    rotation = Rotation(16, 10000.0)
    stored = [table.astype(dtype) for table in rotary_tables(rotation, 30)]
    # Another machine's cosines may be others in the last place.
    stored[0][7, 3] = np.nextafter(stored[0][7, 3], np.array(9, dtype), dtype=dtype)
    graph, tables = _rotary(stored, dtype)
    made = resized_tables(graph, 50, 50, ContextParameters(50, rotation))
    for place, table in enumerate(tables):
        got = np.frombuffer(made[table].constant, dtype).reshape(made[table].max_shape)  # type: ignore[attr-defined]
        assert np.array_equal(got[:30], stored[place])
        assert np.array_equal(got[30:], rotary_tables(rotation, 50)[place][30:].astype(dtype))
    with pytest.raises(UnsupportedError, match="ends at position 30"):
        resized_tables(graph, 50, 50, ContextParameters(50, Rotation(16, 9000.0)))  # the file lies
    assert resized_tables(graph, 20, 20, ContextParameters(50, Rotation(16, 9000.0))) == {}


def _rotary(stored: list[Any], dtype: str) -> tuple[Graph, list[Tensor]]:
    x = [Tensor(f"x {place}", dtype, (1, 8, 2, 16)) for place in range(4)]
    tables = [Tensor(f"table {at}", dtype, data.shape, memoryview(data).cast("B")) for at, data in enumerate(stored)]
    start = SymInt("start")
    node = ops.OPS["et_vk.apply_rotary_emb_hf.default"].bind(0, "rotary", (*x[:2], *tables, start, tuple(x[2:])))
    return Graph("forward", (node,), (*x, *tables, start), (x[0], x[1]), (x[2], x[3])), tables


# Programs of others


class Made:
    """A graph of one layer of attention against a cache of 20 tokens, as others export it."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.nodes: list[Any] = []
        self.tokens, self.position = self.tensor(1, 4, dtype="int64"), self.tensor(1, dtype="int64")
        self.start = self.node("et_vk.select_as_symint.default", self.position, 0, 0, self.scalar())
        self.count = self.node("sym_size.int", self.tokens, 1, self.scalar())
        self.end = self.node("add", self.start, self.count, self.scalar())

    def tensor(self, *shape: int, dtype: str = "float32", data: bool = False) -> Tensor:
        content = memoryview(np.ones(shape, dtype)).cast("B") if data else None
        self.values.append(Tensor(f"value {len(self.values)}", dtype, shape, content))
        return self.values[-1]  # type: ignore[no-any-return]

    def scalar(self) -> SymInt:
        self.values.append(SymInt(f"value {len(self.values)}"))
        return self.values[-1]  # type: ignore[no-any-return]

    def node(self, operator: str, *args: Any) -> Any:
        index = len(self.nodes)
        self.nodes.append(ops.OPS[operator].bind(index, f"{operator} (node {index})", args))
        return args[-1]

    def attention(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        caches = [self.tensor(1, 20, 2, 8, data=True) for _ in range(2)]
        rest = self.start, self.count, mask, 0.0, True, None, self.tensor(1, 4, 2, 8)
        return self.node("sdpa_with_kv_cache.default", x, x, x, *caches, *rest)  # type: ignore[no-any-return]

    def graph(self, x: Tensor) -> Graph:
        out = self.node("aten.view_copy.default", x, (1, self.count, 16), self.tensor(1, 4, 16))
        return Graph("forward", tuple(self.nodes), tuple(self.values), (self.tokens, self.position), (out,))

    def embedded(self) -> Tensor:
        table = self.tensor(9, 16, data=True)
        x = self.node("aten.embedding.default", table, self.tokens, -1, False, False, self.tensor(1, 4, 16))
        return self.node("aten.view_copy.default", x, (1, self.count, 2, 8), self.tensor(1, 4, 2, 8))  # type: ignore[no-any-return]


def rows_of(graph: Graph) -> set[int]:
    return {state.tensor.max_shape[1] for state in at_positions(graph, graph.inputs[1])}


def test_attention_without_tables_grows() -> None:
    made = Made()
    graph = made.graph(made.attention(made.embedded()))
    assert rows_of(with_context(graph, {}, 64)) == {64}
    assert rows_of(with_context(graph, {}, 7)) == {7}
    assert rows_of(with_context(graph, {}, 2)) == {5}, "a call of the most tokens is planned"


def test_rows_of_a_table_that_are_sliced_end() -> None:
    made = Made()
    x = made.embedded()
    tables = [
        made.node(
            "aten.slice_copy.Tensor", made.tensor(20, 4, data=True), 0, made.start, made.end, 1, made.tensor(4, 4)
        )
        for _ in range(2)
    ]
    turned = made.node(
        "et_vk.apply_rotary_emb.default", x, x, *tables, (made.tensor(1, 4, 2, 8), made.tensor(1, 4, 2, 8))
    )
    graph = made.graph(made.attention(turned[0]))
    assert rows_of(with_context(graph, {}, 12)) == {12}
    with pytest.raises(UnsupportedError, match=r"the table of aten.slice_copy.Tensor .* ends at position 20"):
        with_context(graph, {}, 21)


def test_learned_positions_end() -> None:
    made = Made()
    rest = None, None, None, None
    counted = made.node("aten.arange.start_step", made.start, made.end, 1, *rest, made.tensor(4, dtype="int32"))
    table = made.tensor(20, 16, data=True)
    rows = made.node("aten.embedding.default", table, counted, -1, False, False, made.tensor(4, 16))
    x = made.node("aten.view_copy.default", rows, (1, made.count, 2, 8), made.tensor(1, 4, 2, 8))
    graph = made.graph(made.attention(x))
    assert rows_of(with_context(graph, {}, 12)) == {12}
    with pytest.raises(UnsupportedError, match=r"the table of aten.embedding.default .* ends at position 20"):
        with_context(graph, {}, 21)


def test_a_mask_of_the_file_is_as_long_as_its_cache() -> None:
    made = Made()
    graph = made.graph(made.attention(made.embedded(), made.tensor(1, 20, data=True)))
    with pytest.raises(UnsupportedError, match=r"made for 20, and a mask of 20 keys: position 26"):
        with_context(graph, {}, 30)
    assert rows_of(with_context(graph, {}, 12)) == {20}, "the mask speaks of 20 keys, so these stay"


def test_an_operator_that_is_not_known_to_take_any_position_is_refused() -> None:
    made = Made()
    counted = made.node(
        "aten.arange.start_step", made.start, made.end, 1, None, None, None, None, made.tensor(4, dtype="int32")
    )
    made.node("aten.clamp.default", counted, 0, 19, made.tensor(4, dtype="int32"))
    graph = made.graph(made.attention(made.embedded()))
    with pytest.raises(UnsupportedError, match=r"aten.clamp.default \(node 4\) may not be right at other positions"):
        with_context(graph, {}, 21)
    assert rows_of(with_context(graph, {}, 12)) == {20}


def test_a_state_that_is_one_whole_keeps_its_size(opaque: LanguageModel) -> None:
    from tests.llm.test_model import recurrent

    with LanguageModel.load(recurrent(), max_context=3) as model:
        assert model.max_context == 3
        model.prefill([1, 2, 3])
        opaque.reset()
        opaque.prefill([1, 2, 3])
        assert np.array_equal(model.logits(), opaque.logits())
    with pytest.raises(UnsupportedError, match="is not known to be rows at positions"):
        LanguageModel.load(recurrent(), max_context=opaque.max_context + 1)


# What is asked for, and what a file says


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, "4096", 1 << 31])
def test_a_context_is_a_number_of_tokens(wrong: Any) -> None:
    with pytest.raises(InputError, match="max_context"):
        LanguageModel.load(STORY, max_context=wrong)
    assert checked_context(np.int64(7)) == 7


def test_a_context_beyond_what_a_buffer_holds_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"2\*\*32 or more"):
        LanguageModel.load(program(TINY), max_context=(1 << 31) - 1)


def test_advice_names_a_context_that_is_enough() -> None:
    assert "--max-context 4096 (load(max_context=4096)): it was trained for 8,192" in larger_context(8192, 3000)
    assert "--max-context 8192 " in larger_context(8192, 8191)
    assert "--max-context 16384 " in larger_context(8192, 9999)
    assert "will be poor" in larger_context(8192, 9999)
    assert "export" in larger_context(None, 3000)


def test_what_a_file_says_comes_back() -> None:
    scaling = RopeScaling("longrope", 1.2, original_context=64, short=(1.0, 1.5), long=(2.0, 3.0))
    given = ContextParameters(256, Rotation(4, 1e4, scaling, None, 100.0), 64)
    assert ContextParameters.read(given.text()) == given


@pytest.mark.parametrize(
    "change",
    [
        7,
        "",
        "[]",
        "{}",
        "[" * 5000,
        {"trained": 0},
        {"trained": "8192"},
        {"largest": -1},
        {"rotation": None},
        {"rotation": {"rotary_size": 8}},
        {"rotation": {"rotary_size": 8, "rope_theta": "x", "rope_scaling": None}},
        {"rotation": {"rotary_size": 8, "rope_theta": 1e99, "rope_scaling": None}},
        {"rotation": {"rotary_size": 1 << 30, "rope_theta": 1e4, "rope_scaling": None}},
        {"rotation": {"rotary_size": 8, "rope_theta": 1.0, "rope_scaling": None, "rope_factors": [1.0] * 5}},
        {"rotation": {"rotary_size": 8, "rope_theta": 1.0, "rope_scaling": {"kind": 7}}},
        {"rotation": {"rotary_size": 8, "rope_theta": 1.0, "rope_scaling": {"kind": "linear", "odd": 1}}},
    ],
)
def test_a_damaged_word_of_a_file_is_told(change: Any) -> None:
    text = change
    if isinstance(change, dict):
        text = json.dumps({**json.loads(ContextParameters(256, Rotation(8, 1e4)).text()), **change})
    made = Made()
    graph = made.graph(made.attention(made.embedded()))
    with pytest.raises(FormatError, match=METHOD):
        with_context(graph, {METHOD: text}, 30)


def test_the_largest_context_is_the_window_that_has_no_mask() -> None:
    config = from_hugging_face(MODELS["mistral"])
    assert [ContextParameters.of(config, masked).largest for masked in (8, 9, 10, CONTEXT)] == [9, 9, None, None]
    assert ContextParameters.of(replace(config, window=None), 8).largest is None


def test_a_comparison_with_what_may_be_the_context_is_not_right_at_every_context() -> None:
    """Of an unknown file `position <= 2047` may be its context; windows of our exporter compare by lt and ge."""
    names = ("eq", "ne", "lt", "le", "gt", "ge")
    assert [name for name in names if OPS[f"aten.{name}.Scalar"].traits.any_size] == ["lt", "ge"]
