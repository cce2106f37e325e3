#!/bin/sh
# Unpack the software Vulkan driver while pip still works, where no device of a GPU can be seen: reaching adapters takes
# what pip brings. ensure-adapter.sh looks again afterwards, and says what could not be done.
# usage: early-driver.sh PYTHON
set -eu
home=.venv/share/liveshape/vulkan
[ "$(uname -s)" = Linux ] && [ ! -e "$home/driver.json" ] || exit 0
for device in /dev/dri/renderD* /dev/nvidia[0-9]* /dev/kfd /dev/dxg; do
    [ ! -e "$device" ] || exit 0
done
echo "No GPU was found: unpacking Debian's software Vulkan driver (mesa-vulkan-drivers) in .venv."
echo "A CPU answers, but slowly: SmolLM2-135M writes about 3 tokens/s on two cores, a GPU some hundreds."
"$1" -c '
import sys
from pathlib import Path
from liveshape.tools.driver_packages import install
install(Path(sys.argv[1]).resolve(), lambda step: None)' "$home" 2>/dev/null || true
