"""The part of numpy that a program takes to run, over memoryviews, for pages: numpy would double their download.

Arrays are contiguous, in row-major order. What is not here raises and says so; tests compare the rest with numpy.
"""

from __future__ import annotations

import math
from array import array as _items
from collections.abc import Iterable

inf, nan = math.inf, math.nan
newaxis = None

_FORMATS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
_SIZES = {"bool": 1, **{name: int(name.lstrip("uintfloa")) // 8 for name in _FORMATS if name != "bool"}}
_KINDS = {name: name[0] for name in _FORMATS}
_SHORT = {"?": "bool", "f2": "float16", "f4": "float32", "f8": "float64"} | {
    f"{kind}{size}": f"{'u' if kind == 'u' else ''}int{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)
}
_SHORT |= {form: name for name, form in _FORMATS.items()}
_SCALARS = {bool: "bool", int: "int64", float: "float64"}


class dtype:
    """The type of elements; bytes are little-endian."""

    __slots__ = ("itemsize", "kind", "name")

    def __new__(cls, given):
        if isinstance(given, dtype):
            return given
        if isinstance(given, type):
            given = _SCALARS.get(given, given.__name__)
        name = str(given).lstrip("<=|")
        name = _SHORT.get(name, name)
        if name not in _FORMATS:
            raise TypeError(f"data type {given!r} not understood")
        self = object.__new__(cls)
        self.name, self.kind, self.itemsize = name, _KINDS[name], _SIZES[name]
        return self

    def __class_getitem__(cls, kind):
        return cls

    def newbyteorder(self, order="="):
        return self

    @property
    def alignment(self):
        return self.itemsize

    @property
    def str(self):
        return f"{'<' if self.itemsize > 1 else '|'}{self.kind}{self.itemsize}"

    @property
    def type(self):
        return globals()[self.name if self.name != "bool" else "bool_"]

    def __eq__(self, other):
        try:
            return self.name == dtype(other).name
        except TypeError:
            return NotImplemented

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name

    def __repr__(self):
        return f"dtype('{self.name}')"


class generic:
    """A scalar: a number with `item`."""

    __slots__ = ("_number", "dtype")

    def __init__(self, number=0, kind=None):
        self.dtype = dtype(kind or type(self).__name__.rstrip("_"))
        self._number = _wrapped(number, self.dtype)

    ndim, shape, size = 0, (), 1

    def __class_getitem__(cls, kind):
        return cls

    def item(self):
        return self._number

    def __index__(self):
        return int(self._number)

    __int__ = __index__

    def __float__(self):
        return float(self._number)

    def __bool__(self):
        return bool(self._number)

    def __format__(self, form):
        return format(self._number, form)

    def __str__(self):
        return str(self._number)

    def __repr__(self):
        return f"np.{self.dtype.name}({self._number!r})"

    def __hash__(self):
        return hash(self._number)

    def __eq__(self, other):
        return self._number == _bare(other)

    def __lt__(self, other):
        return self._number < _bare(other)

    def __le__(self, other):
        return self._number <= _bare(other)

    def __gt__(self, other):
        return self._number > _bare(other)

    def __ge__(self, other):
        return self._number >= _bare(other)

    def __add__(self, other):
        return self._number + _bare(other)

    def __sub__(self, other):
        return self._number - _bare(other)

    def __pow__(self, other):
        return asarray(self).__pow__(other)


class integer(generic):
    """An integer."""


class floating(generic):
    """A float."""


def _scalar_type(name, base):
    return type(name, (base,), {"__slots__": ()})


bool_ = _scalar_type("bool_", generic)
int8, int16, int32, int64 = (_scalar_type(f"int{bits}", integer) for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_scalar_type(f"uint{bits}", integer) for bits in (8, 16, 32, 64))
float16, float32, float64 = (_scalar_type(f"float{bits}", floating) for bits in (16, 32, 64))


def _bare(value):
    return value.item() if isinstance(value, (generic, ndarray)) else value


def _wrapped(number, kind):
    """A number as an element of this type holds it."""
    if kind.kind == "b":
        return bool(number)
    if kind.kind == "f":
        return float(number) if kind.name == "float64" else _packed([float(number)], kind)[0]
    bits = 8 * kind.itemsize
    whole = int(number) & ((1 << bits) - 1)
    return whole - (1 << bits) if kind.kind == "i" and whole >> (bits - 1) else whole


def _packed(numbers, kind):
    """Numbers as a view of this format. Floats beyond it become infinite, integers wrap."""
    data = bytearray(len(numbers) * kind.itemsize)
    view = memoryview(data).cast(_FORMATS[kind.name])
    if kind.kind in "iu":
        try:
            view[:] = memoryview(_items(_FORMATS[kind.name], numbers))
        except (OverflowError, TypeError):
            for place, number in enumerate(numbers):
                view[place] = _wrapped(number, kind)
        return view
    if kind.name in ("float32", "float64"):
        view[:] = memoryview(_items(_FORMATS[kind.name], numbers))
        return view
    for place, number in enumerate(numbers):
        try:
            view[place] = number
        except OverflowError:
            view[place] = math.copysign(inf, number)
    return view


class flags:
    """That an array may be written."""

    def __init__(self, writeable):
        self.writeable, self.c_contiguous = writeable, True


class ndarray:
    """An array: a flat view of its elements, and a shape."""

    __slots__ = ("_view", "dtype", "shape")

    def __init__(self, view, kind, shape):
        self._view, self.dtype, self.shape = view, kind, tuple(shape)

    def __class_getitem__(cls, kinds):
        return cls

    # What it is

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def flags(self):
        return flags(not self._view.readonly)

    @property
    def T(self):
        if self.ndim < 2:
            return self
        return self._take(list(reversed(range(self.ndim))))

    def __buffer__(self, wanted):
        return memoryview(self._view).cast("B") if self.size else memoryview(b"")

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        return (self[place] for place in range(len(self)))

    def __repr__(self):
        return f"array({self.tolist()}, dtype={self.dtype})"

    # What it holds

    def tobytes(self, order="C"):
        return self._view.tobytes()

    def item(self, place=None):
        if place is None:
            if self.size != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            place = 0
        return self._view[place]

    def __bool__(self):
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu":
            raise TypeError("only integer arrays can be an index")
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __format__(self, form):
        return format(self.item(), form) if not self.shape else format(str(self), form)

    def tolist(self):
        if not self.shape:
            return self._view[0]
        flat = self._view.tolist()
        for size in reversed(self.shape[1:]):
            flat = (
                [flat[at : at + size] for at in range(0, len(flat), size)]
                if size
                else [[]] * math.prod(self.shape[:-1])
            )
        return flat

    # Other shapes and types

    def reshape(self, *shape):
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        shape = [int(size) for size in shape]
        if -1 in shape:
            known = math.prod(size for size in shape if size != -1)
            shape[shape.index(-1)] = self.size // known if known else 0
        if math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}")
        return ndarray(self._view, self.dtype, shape)

    def ravel(self):
        return self.reshape(-1)

    flatten = ravel

    def view(self, kind):
        kind = dtype(kind)
        if kind == self.dtype:
            return self
        if not self.size:
            return empty((*self.shape[:-1], 0) if self.shape else (0,), kind)
        view = self._view.cast("B").cast(_FORMATS[kind.name])
        last = self.shape[-1] * self.dtype.itemsize // kind.itemsize
        return ndarray(view, kind, (*self.shape[:-1], last))

    def astype(self, kind, copy=True):
        kind = dtype(kind)
        if kind == self.dtype:
            return self.copy() if copy else self
        numbers = self._view.tolist()
        if kind.kind in "iu" and self.dtype.kind == "f":
            numbers = [int(number) if math.isfinite(number) else 0 for number in numbers]
        elif kind.kind == "b":
            numbers = [bool(number) for number in numbers]
        return ndarray(_packed(numbers, kind), kind, self.shape)

    def copy(self):
        data = bytearray(self._view.tobytes())
        return ndarray(memoryview(data).cast(_FORMATS[self.dtype.name]), self.dtype, self.shape)

    def byteswap(self, inplace=False):
        if self.itemsize > 1:
            raise _missing("byteswap")
        return self

    def _take(self, axes):
        """The array with its axes in another order."""
        shape, strides = [self.shape[axis] for axis in axes], _strides(self.shape)
        order = [0]
        for axis in axes:
            order = [at + step * strides[axis] for at in order for step in range(self.shape[axis])]
        return ndarray(_packed([self._view[at] for at in order], self.dtype), self.dtype, shape)

    def transpose(self, *axes):
        return self._take(list(axes)) if axes else self.T

    # Parts

    def __getitem__(self, key):
        if isinstance(key, ndarray) and key.dtype.kind == "b":
            chosen = [number for number, wanted in zip(self._view, key._view, strict=True) if wanted]
            return ndarray(_packed(chosen, self.dtype), self.dtype, (len(chosen),))
        keys = key if isinstance(key, tuple) else (key,)
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            more = self.ndim - sum(each is not None and each is not Ellipsis for each in keys)
            keys = (*keys[:at], *[slice(None)] * more, *keys[at + 1 :])
        first = keys[0] if keys else slice(None)
        if len(keys) == 1 and isinstance(first, slice) and first.step in (None, 1) and self.shape:
            start, stop, _ = first.indices(self.shape[0])
            rest = math.prod(self.shape[1:])
            stop = max(start, stop)
            return ndarray(self._view[start * rest : stop * rest], self.dtype, (stop - start, *self.shape[1:]))
        return self._chosen(keys)

    def _chosen(self, keys):
        places, shape, strides, axis = [0], [], _strides(self.shape), 0
        for key in keys:
            if key is None:
                shape.append(1)
                continue
            size = self.shape[axis]
            if isinstance(key, slice):
                steps = range(*key.indices(size))
                shape.append(len(steps))
            else:
                index = int(key)
                if not -size <= index < size:
                    raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
                steps = (index % size,)
            places = [at + step * strides[axis] for at in places for step in steps]
            axis += 1
        rest = self.shape[axis:]
        length = math.prod(rest)
        if not shape and not rest:
            return self.dtype.type(self._view[places[0]])
        if len(places) == 1:
            return ndarray(self._view[places[0] : places[0] + length], self.dtype, (*shape, *rest))
        numbers = [self._view[at + step] for at in places for step in range(length)]
        return ndarray(_packed(numbers, self.dtype), self.dtype, (*shape, *rest))

    def __setitem__(self, key, value):
        part = self[key]
        if not isinstance(part, ndarray):
            place = self._place(key)
            self._view[place] = _bare(value)
            return
        numbers = value.astype(self.dtype, copy=False)._view.tolist() if isinstance(value, ndarray) else value
        if not isinstance(numbers, list):
            numbers = [numbers] * part.size
        elif len(numbers) != part.size:
            raise ValueError(f"could not broadcast {len(numbers)} elements to {part.size}")
        part._view[:] = _packed(numbers, self.dtype)

    def _place(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        return sum(
            int(each) % size * stride for each, size, stride in zip(keys, self.shape, _strides(self.shape), strict=True)
        )

    # Arithmetic, with numbers and with arrays of one shape

    def _with(self, other, function, kind=None):
        if isinstance(other, ndarray) and other.shape and self.shape and other.shape != self.shape:
            raise _missing(f"arithmetic between {self.shape} and {other.shape}")
        target = dtype(kind) if kind else _common(self, other)
        if isinstance(other, ndarray) and other.shape:
            mine = self._view if self.shape else [self._view[0]] * other.size
            numbers = [function(a, b) for a, b in zip(mine, other._view, strict=True)]
            shape = other.shape
        else:
            number = _bare(other)
            numbers, shape = [function(each, number) for each in self._view], self.shape
        return ndarray(_packed(numbers, target), target, shape)

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other):
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._with(other, lambda a, b: a / b if b else math.copysign(inf, a) if a else nan)

    def __rtruediv__(self, other):
        return self._with(other, lambda a, b: b / a if a else math.copysign(inf, b) if b else nan)

    def __pow__(self, other):
        return self._with(other, _power)

    def __lshift__(self, other):
        return self._with(other, lambda a, b: a << b)

    def __rshift__(self, other):
        return self._with(other, lambda a, b: a >> b)

    def __and__(self, other):
        return self._with(other, lambda a, b: a & b)

    def __or__(self, other):
        return self._with(other, lambda a, b: a | b)

    def __neg__(self):
        return self._with(-1, lambda a, b: a * b, self.dtype)

    def __lt__(self, other):
        return self._with(other, lambda a, b: a < b, "bool")

    def __le__(self, other):
        return self._with(other, lambda a, b: a <= b, "bool")

    def __gt__(self, other):
        return self._with(other, lambda a, b: a > b, "bool")

    def __ge__(self, other):
        return self._with(other, lambda a, b: a >= b, "bool")

    def __eq__(self, other):
        return self._with(other, lambda a, b: a == b, "bool")

    def __ne__(self, other):
        return self._with(other, lambda a, b: a != b, "bool")

    __hash__ = None

    # Reductions over all elements

    def any(self):
        return bool_(any(self._view))

    def all(self):
        return bool_(all(self._view))

    def min(self, initial=None):
        return self.dtype.type(self._extreme(min, initial))

    def max(self, initial=None):
        return self.dtype.type(self._extreme(max, initial))

    def _extreme(self, function, initial):
        if not self.size and initial is None:
            raise ValueError("zero-size array to reduction operation which has no identity")
        found = self._view.tolist() if initial is None else [initial, *self._view]
        bad = next((each for each in found if each != each), None)
        return function(found) if bad is None else bad

    def argmax(self):
        found = self._view.tolist()
        return int64(next((at for at, each in enumerate(found) if each != each), found.index(max(found))))

    def argmin(self):
        found = self._view.tolist()
        return int64(next((at for at, each in enumerate(found) if each != each), found.index(min(found))))

    def sum(self):
        total = math.fsum(self._view) if self.dtype.kind == "f" else sum(self._view)
        return (self.dtype.type if self.dtype.kind == "f" else int64)(total)


def _power(a, b):
    try:
        return a**b
    except OverflowError:
        return inf


def _strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def _common(a, b):
    """The type of a result; a Python number takes that of the array."""
    if not isinstance(b, (ndarray, generic)):
        whole = a.dtype.kind in "iub" and isinstance(b, float)
        return (
            dtype("float64")
            if whole
            else dtype("int64")
            if a.dtype.kind == "b" and b is not True and b is not False
            else a.dtype
        )
    one, other = a.dtype, b.dtype
    if one == other:
        return one
    if not can_cast(one, other) and not can_cast(other, one):
        return dtype("float64") if "f" in (one.kind, other.kind) else dtype("int64")
    return other if can_cast(one, other) else one


def _missing(what):
    return NotImplementedError(f"{what} is not in the numpy of a page: load numpy itself (pyodide.loadPackage)")


# Making arrays


def empty(shape, dtype="float64"):
    return zeros(shape, dtype)


def zeros(shape, dtype="float64"):
    kind = globals()["dtype"](dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return ndarray(memoryview(bytearray(math.prod(shape) * kind.itemsize)).cast(_FORMATS[kind.name]), kind, shape)


def full(shape, value, dtype="float64"):
    made = zeros(shape, dtype)
    made[:] = value
    return made


def ones(shape, dtype="float64"):
    return full(shape, 1, dtype)


def frombuffer(data, dtype="float64", count=-1, offset=0):
    kind = globals()["dtype"](dtype)
    view = memoryview(data)
    if view.nbytes == 0:
        return zeros(0, kind)
    view = view.cast("B")[offset:]
    size = len(view) // kind.itemsize if count == -1 else count
    if size * kind.itemsize > len(view) or (count == -1 and len(view) % kind.itemsize):
        raise ValueError("buffer size must be a multiple of element size")
    return ndarray(view[: size * kind.itemsize].cast(_FORMATS[kind.name]), kind, (size,))


def array(given, dtype=None):
    made = asarray(given, dtype)
    return made.copy() if made is given else made


def asarray(given, dtype=None):
    kind = None if dtype is None else globals()["dtype"](dtype)
    if isinstance(given, ndarray):
        return given if kind is None else given.astype(kind, copy=False)
    if isinstance(given, generic):
        return ndarray(_packed([given.item()], kind or given.dtype), kind or given.dtype, ())
    if isinstance(given, (bytes, bytearray, memoryview)) or (
        hasattr(given, "typecode") and hasattr(given, "buffer_info")
    ):
        view = memoryview(given)
        name = next(name for name, form in _FORMATS.items() if form == ("q" if view.format == "l" else view.format))
        made = ndarray(view, globals()["dtype"](name), view.shape)
        return made if kind is None else made.astype(kind, copy=False)
    flat, shape = _flattened(given)
    if kind is None:
        kind = _kind_of(flat)
    return ndarray(_packed([_bare(each) for each in flat], kind), kind, shape)


asanyarray = asarray


def ascontiguousarray(given, dtype=None):
    made = asarray(given, dtype)
    return made if made.shape else made.reshape(1)


def _flattened(given):
    """The numbers of nested lists, and their shape."""
    if isinstance(given, ndarray):
        return given._view.tolist(), given.shape
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        if not isinstance(given, (bool, int, float, generic)):
            raise TypeError(f"{type(given).__name__} is no number")
        return [given], ()
    rows = [_flattened(each) for each in given]
    shapes = {shape for _, shape in rows}
    if len(shapes) > 1:
        raise ValueError("setting an array element with a sequence: rows are of different lengths")
    return [number for numbers, _ in rows for number in numbers], (len(rows), *(shapes.pop() if shapes else ()))


def _kind_of(numbers):
    if not numbers or any(isinstance(each, (float, floating)) for each in numbers):
        return dtype("float64")
    return dtype("bool" if all(isinstance(each, (bool, bool_)) for each in numbers) else "int64")


def arange(*limits, dtype=None):
    numbers = list(range(*[int(each) for each in limits]))
    kind = globals()["dtype"](dtype or "int64")
    return ndarray(_packed(numbers, kind), kind, (len(numbers),))


def concatenate(arrays, axis=0):
    arrays = [asarray(each) for each in arrays]
    first = arrays[0]
    if axis == 1 and first.ndim == 2:
        joined = [row for rows in zip(*arrays, strict=True) for row in rows]
        return concatenate(joined).reshape(first.shape[0], -1)
    if axis not in (0, -first.ndim):
        raise _missing("concatenate along another axis than the first")
    data = b"".join(each.astype(first.dtype, copy=False).tobytes() for each in arrays)
    rows = sum(each.shape[0] for each in arrays)
    return frombuffer(bytearray(data), first.dtype).reshape(rows, *first.shape[1:])


def pad(given, widths):
    made = asarray(given)
    if made.ndim != 1 or not isinstance(widths[0], int):
        raise _missing("pad of more than one dimension")
    before, after = widths
    data = bytes(before * made.itemsize) + made.tobytes() + bytes(after * made.itemsize)
    return frombuffer(bytearray(data), made.dtype)


def where(condition, a, b):
    shape = condition.shape
    first, second = (
        each._view if isinstance(each, ndarray) and each.shape else [_bare(each)] * condition.size for each in (a, b)
    )
    kind = next(each.dtype for each in (a, b) if isinstance(each, ndarray))
    chosen = [x if wanted else y for wanted, x, y in zip(condition._view, first, second, strict=True)]
    return ndarray(_packed(chosen, kind), kind, shape)


def outer(a, b):
    a, b = asarray(a), asarray(b)
    kind = _common(a, b)
    return ndarray(_packed([x * y for x in a._view for y in b._view], kind), kind, (a.size, b.size))


def clip(given, low, high):
    made = asarray(given)
    numbers = [low if each < low else high if each > high else each for each in made._view]
    return ndarray(_packed(numbers, made.dtype), made.dtype, made.shape)


def cos(given):
    return _each(math.cos, given)


def sin(given):
    return _each(math.sin, given)


def _each(function, given):
    made = asarray(given)
    kind = made.dtype if made.dtype.kind == "f" else dtype("float64")
    numbers = [function(each) if math.isfinite(each) else nan for each in made._view]
    return ndarray(_packed(numbers, kind), kind, made.shape)


# Asking about numbers


def isfinite(given):
    made = asarray(given)
    return ndarray(_packed([math.isfinite(each) for each in made._view], dtype("bool")), dtype("bool"), made.shape)


def isnan(given):
    made = asarray(given)
    return ndarray(_packed([each != each for each in made._view], dtype("bool")), dtype("bool"), made.shape)


def array_equal(a, b):
    a, b = asarray(a), asarray(b)
    return a.shape == b.shape and all(x == y for x, y in zip(a._view, b._view, strict=True))


def allclose(a, b, rtol=1e-5, atol=1e-8):
    a, b = asarray(a), asarray(b)
    return all(abs(x - y) <= atol + rtol * abs(y) for x, y in zip(a._view, b._view, strict=True))


def argmax(given):
    return asarray(given).argmax()


def prod(numbers):
    return math.prod(int(each) for each in numbers)


def can_cast(given, wanted, casting="safe"):
    one, other = dtype(given), dtype(wanted)
    order = "buif"
    if casting == "same_kind":
        return (
            order.index(one.kind) <= order.index(other.kind)
            or (one.kind == "u" and other.kind == "i")
            or one.kind == other.kind
        )
    if one == other or one.kind == "b":
        return True
    if one.kind == other.kind:
        return one.itemsize <= other.itemsize
    if other.kind == "f":
        return one.kind in "iu" and (one.itemsize < other.itemsize or other.itemsize == 8)
    return one.kind == "u" and other.kind == "i" and one.itemsize < other.itemsize


class iinfo:
    """The range of integers."""

    def __init__(self, kind):
        kind = dtype(kind)
        bits = 8 * kind.itemsize
        self.bits = bits
        self.min, self.max = (0, (1 << bits) - 1) if kind.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


class finfo:
    """The range of floats."""

    def __init__(self, kind):
        kind = dtype(kind)
        mantissa, most = {"float16": (11, 16), "float32": (24, 128), "float64": (53, 1024)}[kind.name]
        self.max = (2.0 - 2.0 ** (1 - mantissa)) * 2.0 ** (most - 1)
        self.min, self.eps = -self.max, 2.0 ** (1 - mantissa)


class errstate:
    """Nothing warns here."""

    def __init__(self, **kinds):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


class _Masked:
    """No array is masked here."""

    class MaskedArray:
        """Never made."""


ma = _Masked


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*given, **named):
        raise _missing(f"numpy.{name}")

    absent.__name__ = name
    return absent
