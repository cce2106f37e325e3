#!/bin/sh
# Make sure that WebGPU has an adapter: where there is none, install Debian's software Vulkan driver and say so.
# usage: ensure-adapter.sh PYTHON
set -eu
python=$1
if "$python" -m liveshape devices >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "No WebGPU adapter was found. Install a Vulkan driver for your GPU, or Mesa's software driver (lavapipe)." >&2
    exit 3
fi
echo "No WebGPU adapter was found: installing the software Vulkan driver (mesa-vulkan-drivers)."
sudo=
if [ "$(id -u)" -ne 0 ]; then
    sudo=sudo
fi
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers libvulkan1 >/dev/null
"$python" -m liveshape devices
