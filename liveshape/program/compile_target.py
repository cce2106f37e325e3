"""Compile target: the device, whether host fallback is allowed, the kind of activations, the order of sums."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from liveshape.graph.activation_kinds import AUTO, FLOAT32, INT8, check_activations, resolve_activations, with_rounding
from liveshape.graph.limits import MatrixUse

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.formats import PteFile
    from liveshape.graph import Limits


class CompileTarget:
    """A lazily opened device, and the options that programs are compiled with for it.

    Operators without a kernel fall back to the host, slowly and with a warning; `strict` refuses them.
    `activations="int8"` quantizes activations of 4- and 8-bit layers in groups of 32: faster on a GPU, and less exact.
    `"float16"` permits that inputs of products are rounded to float16, where the device has matrix units for them;
    `"auto"` is that where it has, else float32, and float32 with `deterministic`.
    `deterministic` sums every row in one order, however many rows there are: slower, and the same bytes.

    Example: `load_program(CompileTarget("nvidia"), "model.pte")`.
    """

    def __init__(
        self,
        device: Device | str | int | None = None,
        *,
        backend: str | None = None,
        strict: bool = False,
        activations: str = FLOAT32,
        deterministic: bool = False,
    ) -> None:
        self.strict = strict
        check_activations(activations)
        # Rows in one order take no matrix units, so there is nothing that rounding would buy.
        self._asked = FLOAT32 if deterministic and activations == AUTO else activations
        self.deterministic = deterministic
        self._choice = device
        if backend is not None:
            from liveshape.device.backends import name_backend

            self._choice = name_backend(device, backend)
        self._opened: Device | None = None
        self._expected: PteFile | None = None
        self._matrices = _use_of(activations)

    def of_one_program(self) -> CompileTarget:
        """The same choices, for one program: where nobody named a device, each takes the backend that is faster for it.

        Example: `load_program(runtime.of_one_program(), "model.pte")`.
        """
        made = copy(self)
        made._opened, made._expected, made._matrices = None, None, _use_of(self._asked)
        return made

    def expect(self, file: PteFile | None) -> None:
        """Name the open file that the device will run: which backend is faster depends on it. None: it was closed.

        Example: `target.expect(open_file("model.pte"))`.
        """
        self._expected = file if self._opened is None else None

    @property
    def device(self) -> Device:
        """The device, opened at first use."""
        if self._opened is None or self._opened.lost:
            if self._choice is None or isinstance(self._choice, (str, int)):
                from liveshape.device.backends import open_device

                self._opened = open_device(self._choice, matrices=self._matrix_use)
                self._expected = None
            else:
                self._opened = self._choice
        return self._opened

    def _matrix_use(self) -> MatrixUse:
        """What matrix units serve: a kind of activations; of float32, what a program multiplies."""
        if self._asked == FLOAT32 and self._expected is not None:
            from liveshape.program.matrix_use import matrix_use

            self._matrices = matrix_use(self._expected)
            if self.deterministic and self._matrices is MatrixUse.FLOAT32:
                self._matrices = MatrixUse.NOTHING
        return self._matrices

    @property
    def activations(self) -> str:
        """The kind of activations that was chosen, or the one that `auto` takes on the device."""
        return resolve_activations(self._asked, self.device.limits)

    @property
    def limits(self) -> Limits:
        """What the device allows, with the rounding of inputs and the order of sums that were chosen."""
        limits = with_rounding(self.device.limits, self.activations)
        return replace(limits, one_order=True) if self.deterministic else limits


def _use_of(activations: str) -> MatrixUse:
    """What a kind of activations takes matrix units for, whatever the program."""
    return MatrixUse.NOTHING if activations == INT8 else MatrixUse.PRODUCTS
