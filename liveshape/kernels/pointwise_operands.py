"""How the operands of an expression are found: the bindings, the fields of Params and the loads of a generated text.

An operand is `same` where its elements lie as those of the result do, `scalar` where it is one element, and `strided`
where strides find it by the coordinates of an element of the result; `repeated` is one of these that all neighbours in
a row of the result have in common. Coordinates are those of at most MAX_DIMS
dimensions, merged where all operands allow it. A `ramp` is no memory: it is the place itself that strides give. What is
`held` is not loaded: the text has it already, as what a kernel computes, or as what is in the memory of the result.
`apart` are results of whose strided operands four neighbours may not lie together, so that these are read one by one;
with `starts` the first element is not that of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from liveshape.graph.elements import is_complex, is_packed
from liveshape.graph.expression import Expression
from liveshape.kernels.pointwise_elements import array_of, loaded, one, placed
from liveshape.kernels.pointwise_text import number_fields, scalar_of, vector_of

SAME, SCALAR, STRIDED, REPEATED, RAMP, HELD = "same", "scalar", "strided", "repeated", "ramp", "held"
MAX_DIMS = 8


@dataclass(frozen=True)
class Operands:
    """The operands of a generated text, in the order of their bindings: dtypes, and how each is found.

    Names of what it declares begin with `prefix`.
    """

    dtypes: tuple[str, ...]
    found: tuple[str, ...]
    apart: bool = False
    prefix: str = ""
    starts: bool = False
    shared: tuple[int, ...] = ()  # of each that strides find, its column of strides; none: each has its own

    @property
    def computed(self) -> bool:
        """Whether the first is what a kernel computes, and these are those of its epilogue."""
        return bool(self.prefix) and self.found[:1] == (HELD,)

    @property
    def columns(self) -> dict[int, int]:
        """The column of strides of each that strides find, by its place."""
        strided = [place for place, how in enumerate(self.found) if how in (STRIDED, REPEATED, RAMP)]
        return dict(zip(strided, self.shared or range(len(strided)), strict=True))

    @property
    def _count(self) -> int:
        """How many columns of strides there are."""
        return 1 + max(self.columns.values(), default=-1)

    @property
    def words(self) -> int:
        """The vec4s of a dimension in Params: its size, and the strides of every column."""
        return -(-(1 + self._count) // 4)

    @property
    def names(self) -> list[str]:
        """What the elements of each are called."""
        return [f"{self.prefix}x{place}" for place in range(len(self.dtypes))]

    @property
    def _bound(self) -> list[int]:
        """The places of those that are in memory of their own."""
        return [place for place, how in enumerate(self.found) if how not in (RAMP, HELD)]

    def bindings(self) -> list[tuple[str, str]]:
        """Name and element alias of each binding."""
        kind = self.prefix.title().replace("_", "")
        return [(self._source(place), f"T{kind}{place}") for place in self._bound]

    def arrays(self) -> list[tuple[str, str]]:
        """Name and type of each binding, for a text that takes four elements at a time."""
        pairs = zip(self._bound, self.bindings(), strict=True)
        return [
            (name, f"array<{alias}>" if self._is_alone(place) else array_of(self.dtypes[place], alias))
            for place, (name, alias) in pairs
        ]

    def _source(self, place: int) -> str:
        return f"{self.prefix}operand_{place}"

    def _is_alone(self, place: int) -> bool:
        """Whether an operand is bound as an array of scalars."""
        return self.found[place] == REPEATED and not is_packed(self.dtypes[place])

    def _one(self, place: int, at: str, width: int = 4) -> str:
        """An element of an operand, of the array that a text of this width binds; a complex one in all four places."""
        source, dtype = self._source(place), self.dtypes[place]
        alone = width == 1 or self._is_alone(place)
        return f"{scalar_of(dtype)}({source}[{at}])" if alone else one(dtype, source, at)

    def _repeated(self, place: int, at: str, width: int = 4) -> str:
        """An element in all four places."""
        element, dtype = self._one(place, at, width), self.dtypes[place]
        return element if is_complex(dtype) else f"{vector_of(dtype)}({element})"

    @property
    def number(self) -> str:
        """How the names of an expression's numbers begin in Params."""
        return f"{self.prefix}number_"

    def fields(self, expression: Expression) -> list[tuple[str, str]]:
        """Name and type of what an expression needs of Params: how many elements there are, numbers, and strides."""
        count = [(f"{self.prefix}count", "u32")] if self.apart or not self.prefix else []
        own = [*count, *number_fields(expression, self.number, self.computed)]
        if not self.columns:
            return own
        dims = [(f"{self.prefix}rank", "u32"), (f"{self.prefix}dims", f"array<vec4<u32>, {MAX_DIMS * self.words}>")]
        return [*own, *dims, *([(f"{self.prefix}starts", f"array<vec4<u32>, {self.words}>")] if self.starts else [])]

    def _stride(self, column: int, axis: str = "") -> str:
        """The stride of a column along a dimension, the first one or another, in Params."""
        word, lane = divmod(column + 1, 4)
        return f"params.{self.prefix}dims[{f'{axis} * {self.words}u + ' if axis else ''}{word}u][{lane}]"

    def functions(self) -> str:
        """The function that finds an element of every strided operand."""
        if not self.columns:
            return ""
        prefix, columns = self.prefix, range(self._count)
        starts = [(column, *divmod(column + 1, 4)) for column in columns] if self.starts else []
        lines = [
            f"fn {prefix}offsets(element: u32) -> array<u32, {self._count}> {{",
            "var rest = element;",
            f"var found: array<u32, {self._count}>;",
            *(f"found[{column}] = params.{prefix}starts[{word}][{lane}];" for column, word, lane in starts),
            f"for (var axis = params.{prefix}rank; axis > 1u; axis--) {{",
            f"let size = params.{prefix}dims[(axis - 1u) * {self.words}u].x;",
            "let place = rest % size;",
            *(f"found[{column}] += place * {self._stride(column, '(axis - 1u)')};" for column in columns),
            "rest = rest / size;",
            "}",
            *(f"found[{column}] += rest * {self._stride(column)};" for column in columns),
        ]
        return "\n".join([*lines, "return found;", "}"])

    def loads(self, index: str, width: int = 4) -> list[str]:
        """The statements that load four neighbours of each operand from the vector of that index on, or, of a width of
        one, the element there in all four places."""
        found = zip(self.names, self.found, self.dtypes, strict=True)
        lines = [f"let at = {self.prefix}offsets({index});"] if self.columns and width == 1 else []
        for place, (name, how, dtype) in enumerate(found):
            if how == HELD:
                continue
            if width == 1:
                at = index if how == SAME else "0" if how == SCALAR else f"at[{self.columns[place]}]"
                lines.append(f"let {name} = {self._repeated(place, at, width)};")
            elif how == SAME:
                lines.append(f"let {name} = {loaded(dtype, self._source(place), index)};")
            elif how == SCALAR:
                lines.append(f"let {name} = {self._repeated(place, '0u')};")
            else:
                lines.append(f"var {name}: {vector_of(dtype)};")
        return [*lines, *(self._strided_loads(index) if self.columns and width == 4 else [])]

    def _strided_loads(self, vector: str) -> list[str]:
        prefix, lines = self.prefix, []
        if self.apart:  # beyond the last element nothing is looked up
            element = f"min(4u * {vector} + k, params.{prefix}count - 1u)"
            lines.append(f"for (var k = 0u; k < 4u; k++) {{ let at = {prefix}offsets({element});")
            for place, column in self.columns.items():
                at, ramp = f"at[{column}]", self.found[place] == RAMP
                element = f"i32({at})" if ramp else self._one(place, at)
                lines += placed(self.dtypes[place], self.names[place], "k", element)
            return [*lines, "}"]
        lines.append(f"var at = {prefix}offsets(4u * {vector});")
        for place, column in self.columns.items():
            name, dtype, at = self.names[place], self.dtypes[place], f"at[{column}]"
            stride = self._stride(column, f"(max(params.{prefix}rank, 1u) - 1u)")
            if self.found[place] == RAMP:
                lines.append(f"{name} = vec4<i32>({at} + {stride} * vec4<u32>(0u, 1u, 2u, 3u));")
                continue
            every = self._repeated(place, at)
            if self.found[place] == STRIDED:
                four = loaded(dtype, self._source(place), f"{at} >> 2u")
                lines.append(f"if ({stride} == 1u) {{ {name} = {four}; }} else {{ {name} = {every}; }}")
            else:
                lines.append(f"{name} = {every};")
        return lines
