"""How the operands of an expression are found: the bindings, the fields of Params and the loads of a generated text.

An operand is `same` where its elements lie as those of the result do, `scalar` where it is one element, and `strided`
where strides find it by the coordinates of an element of the result; `repeated` is one of these that all neighbours in
a row of the result have in common. Coordinates are those of at most MAX_DIMS
dimensions, merged where all operands allow it. A `ramp` is no memory: it is the place itself that strides give. `apart`
are results of whose strided operands four neighbours may not lie together, so that these are read one by one; with
`starts` the first element is not that of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from liveshape.graph.elements import is_packed
from liveshape.graph.expression import Expression, is_whole
from liveshape.kernels.pointwise_elements import array_of, loaded, placed, repeated
from liveshape.kernels.pointwise_text import number_fields, vector_of

SAME, SCALAR, STRIDED, REPEATED, RAMP = "same", "scalar", "strided", "repeated", "ramp"
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
    def strided(self) -> tuple[int, ...]:
        """The places of those that strides find."""
        return tuple(place for place, how in enumerate(self.found) if how in (STRIDED, REPEATED, RAMP))

    @property
    def _placed(self) -> list[tuple[int, int]]:
        """The column of strides of each that strides find, and its place."""
        return list(zip(self.shared or range(len(self.strided)), self.strided, strict=True))

    @property
    def columns(self) -> int:
        """How many columns of strides there are."""
        return 1 + max((column for column, _ in self._placed), default=-1)

    @property
    def words(self) -> int:
        """The vec4s of a dimension in Params: its size, and the strides of every column."""
        return -(-(1 + self.columns) // 4)

    def bindings(self) -> list[tuple[str, str]]:
        """Name and element alias of each binding."""
        return [(f"{self.prefix}operand_{place}", self._alias(place)) for place in self._bound]

    @property
    def _bound(self) -> list[int]:
        return [place for place, how in enumerate(self.found) if how != RAMP]

    def arrays(self) -> list[tuple[str, str]]:
        """Name and type of each binding, for a text that takes four elements at a time."""
        pairs = zip(self._bound, self.bindings(), strict=True)
        return [
            (name, f"array<{alias}>" if self._is_alone(place) else array_of(self.dtypes[place], alias))
            for place, (name, alias) in pairs
        ]

    def _alias(self, place: int) -> str:
        return f"T{self.prefix.title().replace('_', '')}{place}"

    def _is_alone(self, place: int) -> bool:
        """Whether an operand is bound as an array of scalars."""
        return self.found[place] == REPEATED and not is_packed(self.dtypes[place])

    def _element(self, place: int, at: str) -> str:
        """One element of an operand that is repeated."""
        source, dtype = f"{self.prefix}operand_{place}", self.dtypes[place]
        if is_packed(dtype):
            return f"signed_byte({source}[{at} >> 2u], {at} & 3u)"
        return f"{_scalar(dtype)}({source}[{at}])"

    @property
    def number(self) -> str:
        """How the names of an expression's numbers begin in Params."""
        return f"{self.prefix}number_"

    def fields(self, expression: Expression) -> list[tuple[str, str]]:
        """Name and type of what an expression needs of Params: how many elements there are, numbers, and strides."""
        count = [(f"{self.prefix}count", "u32")] if self.apart or not self.prefix else []
        own = [*count, *number_fields(expression, self.number)]
        if not self.strided:
            return own
        dims = [(f"{self.prefix}rank", "u32"), (f"{self.prefix}dims", f"array<vec4<u32>, {MAX_DIMS * self.words}>")]
        return [*own, *dims, *([(f"{self.prefix}starts", f"array<vec4<u32>, {self.words}>")] if self.starts else [])]

    def functions(self) -> str:
        """The function that finds an element of every strided operand."""
        if not self.strided:
            return ""
        name, count, words = f"{self.prefix}offsets", self.columns, self.words
        lines = [
            f"fn {name}(element: u32) -> array<u32, {count}> {{",
            "var rest = element;",
            f"var found: array<u32, {count}>;",
            *(self._from_starts() if self.starts else ()),
            f"for (var axis = params.{self.prefix}rank; axis > 1u; axis--) {{",
            f"let size = params.{self.prefix}dims[(axis - 1u) * {words}u].x;",
            "let place = rest % size;",
        ]
        steps = [(position, divmod(position + 1, 4)) for position in range(count)]
        for position, (word, lane) in steps:
            lines.append(
                f"found[{position}] += place * params.{self.prefix}dims[(axis - 1u) * {words}u + {word}u][{lane}];"
            )
        lines += ["rest = rest / size;", "}"]
        for position, (word, lane) in steps:
            lines.append(f"found[{position}] += rest * params.{self.prefix}dims[{word}][{lane}];")
        return "\n".join([*lines, "return found;", "}"])

    def _from_starts(self) -> list[str]:
        places = enumerate(divmod(position + 1, 4) for position in range(self.columns))
        return [f"found[{position}] = params.{self.prefix}starts[{word}][{lane}];" for position, (word, lane) in places]

    def loads(self, vector: str) -> tuple[list[str], list[str]]:
        """The statements that load four neighbours of each operand, and the names of these; `vector` is their index."""
        lines, names = [], []
        for place, (dtype, how) in enumerate(zip(self.dtypes, self.found, strict=True)):
            source, name = f"{self.prefix}operand_{place}", f"{self.prefix}x{place}"
            names.append(name)
            if how == SAME:
                lines.append(f"let {name} = {loaded(dtype, source, vector)};")
            elif how == SCALAR:
                lines.append(f"let {name} = {repeated(dtype, source, '0u')};")
            else:
                lines.append(f"var {name}: {vector_of(dtype)};")
        lines += self._strided_loads(vector) if self.strided else []
        return lines, names

    def _strided_loads(self, vector: str) -> list[str]:
        prefix, lines = self.prefix, []
        if self.apart:  # beyond the last element nothing is looked up
            element = f"min(4u * {vector} + k, params.{prefix}count - 1u)"
            lines.append(f"for (var k = 0u; k < 4u; k++) {{ let at = {prefix}offsets({element});")
            for position, place in self._placed:
                name, source = f"{prefix}x{place}", f"{prefix}operand_{place}"
                if self.found[place] == RAMP:
                    lines.append(f"{name}[k] = i32(at[{position}]);")
                elif self.found[place] == REPEATED:
                    lines.append(f"{name}[k] = {self._element(place, f'at[{position}]')};")
                else:
                    lines += placed(self.dtypes[place], name, "k", source, f"at[{position}]")
            return [*lines, "}"]
        lines.append(f"var at = {prefix}offsets(4u * {vector});")
        last = f"params.{prefix}dims[(max(params.{prefix}rank, 1u) - 1u) * {self.words}u"
        for position, place in self._placed:
            word, lane = divmod(position + 1, 4)
            dtype, name, source = self.dtypes[place], f"{prefix}x{place}", f"{prefix}operand_{place}"
            if self.found[place] == RAMP:
                lines.append(
                    f"{name} = vec4<i32>(at[{position}] + {last} + {word}u][{lane}] * vec4<u32>(0u, 1u, 2u, 3u));"
                )
                continue
            if self.found[place] == REPEATED:
                lines.append(f"{name} = {vector_of(dtype)}({self._element(place, f'at[{position}]')});")
                continue
            lines += [
                f"if ({last} + {word}u][{lane}] == 1u) {{",
                f"{name} = {loaded(dtype, source, f'at[{position}] >> 2u')};",
                f"}} else {{ {name} = {repeated(dtype, source, f'at[{position}]')}; }}",
            ]
        return lines

    def _column(self, place: int) -> int:
        return next(column for column, each in self._placed if each == place)

    def element_loads(self, element: str) -> tuple[list[str], list[str]]:
        """The statements that load one element of each operand, in all lanes of a vector, and the names of these."""
        lines, names = [], []
        if self.strided:
            lines.append(f"var at = {self.prefix}offsets({element});")
        for place, (dtype, how) in enumerate(zip(self.dtypes, self.found, strict=True)):
            source, name = f"{self.prefix}operand_{place}", f"{self.prefix}x{place}"
            index = {SAME: element, SCALAR: "0"}.get(how) or f"at[{self._column(place)}]"
            lines.append(f"let {name} = vec4<{_scalar(dtype)}>({_scalar(dtype)}({source}[{index}]));")
            names.append(name)
        return lines, names


def _scalar(dtype: str) -> str:
    return "i32" if is_whole(dtype) else "f32"
