"""Where programs run and what is asked of each: the device, the host's part, the dtype of activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from liveshape.device.protocol import Device


class CompileTarget:
    """A device, which is opened when it is first needed, and how programs are compiled for it.

    An operator without a kernel runs on the host, slowly and with a warning; where `strict`, it is refused.
    `activations="int8"` rounds the rows of 4-bit linear layers to integers: faster on a GPU, and less exact.

    Example: `load_program(CompileTarget("nvidia"), "model.pte")`.
    """

    def __init__(
        self, device: Device | str | int | None = None, *, strict: bool = False, activations: str = "float32"
    ) -> None:
        self.strict = strict
        self.activations = activations
        self._choice = device
        self._opened: Device | None = None

    @property
    def device(self) -> Device:
        """The open device."""
        if self._opened is None or self._opened.lost:
            if self._choice is None or isinstance(self._choice, (str, int)):
                from liveshape.device.backends import open_device

                self._opened = open_device(self._choice)
            else:
                self._opened = self._choice
        return self._opened
