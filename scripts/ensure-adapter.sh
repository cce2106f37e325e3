#!/bin/sh
# Make sure that WebGPU has an adapter: where there is no GPU, unpack Debian's software Vulkan driver beside the Python
# environment, and say so. Nothing is installed, nobody has to be root.
# usage: ensure-adapter.sh PYTHON [tests]    for tests the driver of the release, too: it compiles kernels faster
set -eu
python=$1
home=$("$python" -c 'import sys; print(sys.prefix)')/share/liveshape
if "$python" -c '
import sys
from liveshape.device.backends import list_adapters
sys.exit(all(adapter.software for adapter in list_adapters()))'; then
    exit 0
fi
missing=
[ -e "$home/vulkan/driver.json" ] || missing=newest
if [ "${2:-}" = tests ] && [ ! -e "$home/vulkan-stable/driver.json" ]; then
    missing="$missing stable"
fi
[ -n "$missing" ] || exit 0
echo "No GPU was found: unpacking Debian's software Vulkan driver (mesa-vulkan-drivers) in .venv."
echo "A CPU answers, but slowly: SmolLM2-135M writes about 3 tokens/s on two cores, a GPU some hundreds."
case $missing in *stable)
    # Where there is none, what the system has is good enough.
    "$python" "$(dirname "$0")/software_driver.py" --stable "$home/vulkan-stable" &
esac
case $missing in newest*) "$python" -m liveshape devices --install-software-driver || "$python" -m liveshape devices ;;
*) "$python" -m liveshape devices ;;
esac
wait
