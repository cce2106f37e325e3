"""Weights (constants) of a plan on a device: uploaded and prepacked once, shared by all executors of the plan."""

from __future__ import annotations

from liveshape.device.protocol import Buffer, Device, UploadsFiles
from liveshape.graph import Tensor
from liveshape.plan.plan import Plan
from liveshape.progress import Progress
from liveshape.run.arrays import is_stored_as_in_file, stored_pieces
from liveshape.run.prepacking import prepack
from liveshape.run.upload import stream


class Weights:
    """Device buffers of the read-only blocks of a plan.

    Example: `Weights(plan, device)`, given to several executors of the plan.
    """

    def __init__(self, plan: Plan, device: Device, progress: Progress | None = None) -> None:
        self.plan, self.device = plan, device
        self.blocks: dict[int, Buffer] = {}
        graph, storages = plan.graph, plan.memory.storages
        constants = {
            storages[tensor]: tensor
            for tensor in graph.tensors
            if tensor in storages and tensor.constant is not None and not graph.writers[tensor]
        }
        left = dict.fromkeys(tensor for step in plan.prepack for tensor in step.tensors if tensor not in storages)
        total = sum(len(tensor.constant or b"") for tensor in (*constants.values(), *left))
        done = 0

        def load(device: Device, buffer: Buffer, tensor: Tensor, half: bool) -> None:
            nonlocal done
            upload(device, buffer, tensor, half)
            done = min(done + len(tensor.constant or b""), total)  # several nodes may prepack one constant
            if progress is not None:
                progress(done, total)

        try:
            for storage, tensor in constants.items():
                nbytes = plan.memory.blocks[storage.block]
                buffer = self.blocks[storage.block] = device.buffer(nbytes, f"{graph.name} {tensor.name}")
                load(device, buffer, tensor, plan.limits.half)
            for tensor in plan.prepacked:
                block = storages[tensor].block
                self.blocks[block] = device.buffer(plan.memory.blocks[block], f"{graph.name} {tensor.name}")
            prepack(plan, device, lambda tensor: self.blocks[storages[tensor].block], load)
            device.flush()
        except BaseException:
            self.close()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(buffer.nbytes for buffer in self.blocks.values())

    def close(self) -> None:
        """Free the buffers."""
        buffers = list(self.blocks.values())
        self.blocks.clear()
        self.device.free(buffers)


def upload(device: Device, buffer: Buffer, tensor: Tensor, half: bool) -> None:
    """Stream a constant from the file into a new buffer, converting dtypes that WGSL lacks."""
    if not _upload_by_device(device, buffer, tensor, half):
        stream(device, buffer, stored_pieces(tensor, half), fresh=True)


def _upload_by_device(device: Device, buffer: Buffer, tensor: Tensor, half: bool) -> bool:
    """Whether the device has uploaded a constant from its file by itself."""
    if tensor.constant is None or not is_stored_as_in_file(tensor.dtype, half) or not isinstance(device, UploadsFiles):
        return False
    return device.upload(buffer, tensor.constant)
