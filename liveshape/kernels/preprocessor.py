"""The format of a kernel's file: WGSL, and directives, each on a line of its own.

    #include folder/file              the text of that file, once in a kernel
    #choice EPILOGUE: store, residual what `Kernel.load(name, EPILOGUE="residual")` decides; else it is the first
    #if EPILOGUE == residual          also `!=`, and a name alone: neither 0 nor false
    #elif, #else, #endif
    #unroll i < ROWS, #endunroll      the text between them, once for every i, which it has as `$i`; also `i < 4`

A condition on a choice is decided when the kernel is loaded, so that bindings and Params may depend on it. One on an
`override` is decided when the text of a variant is made, and so is how often a text is unrolled: compilers keep a
matrix in registers only if it has a name of its own. No branch that was not taken is in what a device compiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pkgutil import get_data
from typing import Any

from liveshape.errors import PlanError

SUBGROUP = "SUBGROUP"  # the size of a device's subgroups; 0 in a kernel that does not declare it

_CONDITION = re.compile(r"(\w+)(?:\s*(==|!=)\s*(\w+))?")
_COUNTED = re.compile(r"(\w+) < (\w+)")
_CHOICE = re.compile(r"(\w+): (\w+(?:, \w+)*)")
_DECLARES_SUBGROUP = re.compile(rf"^override {SUBGROUP}\b", re.MULTILINE)
_FALSE = ("0", "false")


@dataclass(frozen=True)
class Condition:
    """A name, and the value that it must have or must not have; without one, it must be neither 0 nor false."""

    name: str
    value: str
    equal: bool
    place: str  # file and line, for errors

    def holds(self, value: str) -> bool:
        found = value.rstrip("u") if value[:1].isdigit() else value
        return (found == self.value) is self.equal if self.value else found not in _FALSE


@dataclass(frozen=True)
class Include:
    name: str
    place: str


@dataclass(frozen=True)
class Conditional:
    """Branches of which the first whose condition holds is taken; that of `#else` has none."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Unrolled:
    """A text that is repeated as often as a constant says; `counted` has its name, and the text has `$variable`."""

    variable: str
    counted: Condition
    pieces: Pieces


Piece = str | Include | Conditional | Unrolled
Pieces = tuple[Piece, ...]
Branch = tuple[Condition | None, Pieces]
Choices = dict[str, tuple[str, ...]]  # values by name, the first where nothing is said


@dataclass(frozen=True)
class File:
    """A file as it stands: its text in pieces, and its choices."""

    pieces: Pieces
    choices: Choices


@cache
def read(name: str) -> File:
    """A file of `liveshape/kernels/wgsl`, which many kernels may include."""
    text = get_data("liveshape.kernels.wgsl", f"{name}.wgsl")  # by its importer: in a page it is an archive's
    return parse(name, (text or b"").decode())


def parse(name: str, text: str) -> File:
    """A file from its text.

    >>> parse("sample", "#if WIDE == 4\\nlet four = 4u;\\n#endif\\n").pieces[0].branches[0][0].place
    'sample.wgsl:1'
    """
    choices: Choices = {}
    lines = enumerate(text.splitlines(keepends=True), start=1)
    pieces, ended = _pieces(name, lines, choices, opened="")
    if ended:
        raise PlanError(f"{ended}: there is no #if that this belongs to")
    return File(pieces, choices)


def _pieces(
    name: str, lines: Iterator[tuple[int, str]], choices: Choices, opened: str, *, unrolled: bool = False
) -> tuple[Pieces, str]:
    """The pieces up to what ends a branch, and that line with its place; `opened` is the place where it began."""
    pieces: list[Piece] = []
    for number, line in lines:
        place = f"{name}.wgsl:{number}"
        word, _, rest = line.strip().partition(" ")
        if not word.startswith("#"):
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += line
            else:
                pieces.append(line)
        elif word == "#include":
            pieces.append(Include(rest, place))
        elif word == "#choice":
            _declare(choices, rest, place, opened)
        elif word == "#if":
            pieces.append(_conditional(name, lines, choices, rest, place))
        elif word == "#unroll":
            pieces.append(_unrolled(name, lines, choices, rest, place))
        elif word in ("#elif", "#else", "#endif", "#endunroll"):
            return tuple(pieces), f"{place} {word} {rest}"
        else:
            known = "#include, #choice, #if, #elif, #else, #endif, #unroll, #endunroll"
            raise PlanError(f"{place}: {word} is no directive; there are {known}")
    if opened:
        word = "#unroll" if unrolled else "#if"
        raise PlanError(f"{opened}: this {word} has no {word.replace('#', '#end')}")
    return tuple(pieces), ""


def _conditional(name: str, lines: Iterator[tuple[int, str]], choices: Choices, rest: str, place: str) -> Conditional:
    branches: list[Branch] = []
    condition: Condition | None = _condition(rest, place)
    while True:
        body, ended = _pieces(name, lines, choices, opened=place)
        branches.append((condition, body))
        where, word, rest = ended.split(" ", 2)
        if word == "#endif":
            return Conditional(tuple(branches))
        if word == "#endunroll":
            raise PlanError(f"{where}: there is no #unroll that this belongs to")
        if condition is None:
            raise PlanError(f"{where}: {word} stands behind #else")
        condition = _condition(rest, where) if word == "#elif" else None


def _unrolled(name: str, lines: Iterator[tuple[int, str]], choices: Choices, rest: str, place: str) -> Unrolled:
    match = _COUNTED.fullmatch(rest.strip())
    if match is None:
        raise PlanError(f"{place}: what is unrolled is `#unroll i < NAME`, not {rest.strip()!r}")
    body, ended = _pieces(name, lines, choices, opened=place, unrolled=True)
    where, word, _ = ended.split(" ", 2)
    if word != "#endunroll":
        raise PlanError(f"{where}: there is no #if that this belongs to")
    return Unrolled(match.group(1), Condition(match.group(2), "", True, place), body)


def _condition(text: str, place: str) -> Condition:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"{place}: a condition is NAME, NAME == value or NAME != value, not {text.strip()!r}")
    name, sign, value = match.groups()
    return Condition(name, value or "", sign != "!=", place)


def _declare(choices: Choices, text: str, place: str, opened: str) -> None:
    match = _CHOICE.fullmatch(text.strip())
    if match is None or opened or match.group(1) in choices:
        raise PlanError(f"{place}: a choice is `#choice NAME: first, second`, once, and under no condition")
    choices[match.group(1)] = tuple(match.group(2).split(", "))


@dataclass(frozen=True)
class Chosen:
    """What a kernel's choices are, and what the files that it may include allow them to be."""

    values: dict[str, str]
    choices: Choices

    @property
    def others(self) -> tuple[str, ...]:
        """The values that are not the first of their choice: what sets this kernel apart from its siblings."""
        return tuple(self.values[name] for name, values in self.choices.items() if self.values[name] != values[0])


def choose(kernel: str, file: File, given: Mapping[str, str]) -> Chosen:
    """The choices of a kernel's file and of all that it may include, by what is given."""
    choices: Choices = {}
    declares_subgroup = False
    for each in _reached(file, set()):
        for name, values in each.choices.items():
            if choices.setdefault(name, values) != values:
                raise PlanError(f"kernel {kernel}: {name} is {choices[name]} in one file and {values} in another")
        declares_subgroup |= any(_DECLARES_SUBGROUP.search(text) for text in texts(each.pieces))
    for name, value in given.items():
        if value not in choices.get(name, ()):
            allowed = " or ".join(choices.get(name, ("nothing",)))
            raise PlanError(f"kernel {kernel} takes {allowed} for {name}, not {value}")
    values_of = {name: given.get(name, values[0]) for name, values in choices.items()}
    return Chosen(values_of if declares_subgroup else values_of | {SUBGROUP: "0"}, choices)


def _reached(file: File, seen: set[str]) -> Iterator[File]:
    yield file
    for include in _leaves(file.pieces):
        if isinstance(include, Include) and include.name not in seen:
            seen.add(include.name)
            yield from _reached(read(include.name), seen)


def _leaves(pieces: Pieces) -> Iterator[str | Include]:
    """Texts and includes, those of every branch among them."""
    for piece in pieces:
        if isinstance(piece, Conditional):
            for _, body in piece.branches:
                yield from _leaves(body)
        elif isinstance(piece, Unrolled):
            yield from _leaves(piece.pieces)
        else:
            yield piece


def texts(pieces: Pieces) -> Iterator[str]:
    """The text of every branch."""
    return (leaf for leaf in _leaves(pieces) if isinstance(leaf, str))


def expand(pieces: Pieces, chosen: Chosen, taken: set[str], undecided: str = "") -> Iterator[Piece]:
    """The pieces with what they include, each file once; conditions that are left are on overrides.

    Whatever depends on such a condition is `undecided`.
    """
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif isinstance(piece, Include):
            if undecided:
                raise PlanError(f"{piece.place}: #include cannot depend on {undecided}, which only a variant knows")
            if piece.name not in taken:
                taken.add(piece.name)
                yield from expand(read(piece.name).pieces, chosen, taken)
        elif isinstance(piece, Unrolled):
            body = tuple(expand(piece.pieces, chosen, taken, piece.counted.name))
            yield Unrolled(piece.variable, piece.counted, body)
        else:
            left = tuple(_branches_left(piece, chosen))
            first = left[0][0] if left else None
            if first is not None:
                inside = ((condition, tuple(expand(body, chosen, taken, first.name))) for condition, body in left)
                yield Conditional(tuple(inside))
            elif left:
                yield from expand(left[0][1], chosen, taken, undecided)


def _branches_left(conditional: Conditional, chosen: Chosen) -> Iterator[Branch]:
    """The branches that may still be taken, up to one that is taken if none before it is."""
    for condition, body in conditional.branches:
        if condition is not None and condition.name not in chosen.values:
            yield condition, body
            continue
        if condition is not None:
            allowed = chosen.choices.get(condition.name, (condition.value,))
            if condition.value not in allowed:
                raise PlanError(f"{condition.place}: {condition.name} is one of {', '.join(allowed)}; compare it")
            if not condition.holds(chosen.values[condition.name]):
                continue
        yield None, body
        return


def conditions(pieces: Pieces) -> Iterator[Condition]:
    """All conditions that are left, and what counts the texts that are unrolled."""
    for piece in pieces:
        if isinstance(piece, Unrolled):
            if not piece.counted.name.isdigit():
                yield piece.counted
            yield from conditions(piece.pieces)
        if isinstance(piece, Conditional):
            for condition, body in piece.branches:
                if condition is not None:
                    yield condition
                yield from conditions(body)


def cleaned(pieces: Pieces, clean: Callable[[str], str]) -> Pieces:
    """The pieces with every text cleaned, neighbouring ones as one."""
    found: list[Piece] = []
    for is_text, row in groupby(pieces, lambda piece: isinstance(piece, str)):
        if is_text:
            found.append(clean("".join(texts(tuple(row)))))
        else:
            found += [_cleaned(piece, clean) for piece in row if isinstance(piece, (Conditional, Unrolled))]
    return tuple(found)


def _cleaned(piece: Conditional | Unrolled, clean: Callable[[str], str]) -> Conditional | Unrolled:
    if isinstance(piece, Unrolled):
        return Unrolled(piece.variable, piece.counted, cleaned(piece.pieces, clean))
    return Conditional(tuple((condition, cleaned(body, clean)) for condition, body in piece.branches))


def resolve(pieces: Pieces, constants: Mapping[str, Any]) -> str:
    """The text of a variant, whose constants decide what is left.

    >>> resolve(parse("sample", "#if ROWS == 2\\nfn two() {}\\n#endif\\n").pieces, {"ROWS": "2u"})
    'fn two() {}\\n'
    >>> resolve(parse("sample", "#unroll i < ROWS\\nlet x$i = $iu;\\n#endunroll\\n").pieces, {"ROWS": "2u"})
    'let x0 = 0u;\\nlet x1 = 1u;\\n'
    >>> resolve(parse("sample", "#unroll i < 2\\nlet x$i = $iu;\\n#endunroll\\n").pieces, {})
    'let x0 = 0u;\\nlet x1 = 1u;\\n'
    """
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return pieces[0]
    found: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            found.append(piece)
        elif isinstance(piece, Conditional):
            for condition, body in piece.branches:
                if condition is None or condition.holds(str(constants[condition.name])):
                    found.append(resolve(body, constants))
                    break
        elif isinstance(piece, Unrolled):
            text, name = resolve(piece.pieces, constants), piece.counted.name
            count = int(str(constants.get(name, name)).rstrip("u"))
            found += [text.replace(f"${piece.variable}", str(each)) for each in range(count)]
    return "".join(found)
