#!/bin/sh
# Run Python where Dawn offers matrices: on a GPU that has them, else on Mesa's software Vulkan driver that has them,
# unpacked beside the Python environment with the libc that it needs. It is for tests alone.
# usage: with-matrices.sh PYTHON [ARGUMENT...]
set -eu
python=$1
shift
driver=$("$python" -c 'import sys; print(sys.prefix)')/share/liveshape/vulkan-matrices
if "$python" -c '
import sys
from liveshape.device.backends import list_adapters
sys.exit(not any(adapter.matrices for adapter in list_adapters("dawn")))'; then
    exec "$python" "$@"
fi
if [ ! -e "$driver/driver.json" ]; then
    echo "No GPU offers matrices to Dawn: unpacking a software Vulkan driver that does, with its libc (300 MB), in .venv."
    "$python" "$(dirname "$0")/software_driver.py" --matrices "$driver"
fi
# llvmpipe has matrices where its vectors are of 256 bits.
export VK_DRIVER_FILES="$driver/driver.json" LP_NATIVE_VECTOR_WIDTH=256
exec "$driver"/ld-linux*.so* --library-path "$driver" "$python" "$@"
