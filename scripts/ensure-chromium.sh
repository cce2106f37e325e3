#!/bin/sh
# Make sure that pages have a browser to be tested in: where the system has none, unpack Debian's Chromium beside the
# Python environment, or have Playwright download one there, and say so. Nothing is installed.
# usage: ensure-chromium.sh PYTHON
set -eu
python=$1
home=$("$python" -c 'import sys; print(sys.prefix)')/share/liveshape
if [ -n "${LIVESHAPE_CHROMIUM:-}" ] || [ -e "$home/chromium" ] || [ -e "$home/browsers" ] ||
    command -v chromium >/dev/null || command -v google-chrome >/dev/null; then
    exit 0
fi
echo "No Chromium was found: unpacking one (400 MB) in .venv, for the tests of pages."
# Pip may still be at work: the package is taken from the checkout.
PYTHONPATH=$(dirname "$0")/.. "$python" "$(dirname "$0")/chromium.py" "$home/chromium" ||
    PLAYWRIGHT_BROWSERS_PATH=$home/browsers "$python" -m playwright install chromium || {
    echo "Pages are tested in Chromium, and none could be had: install one, or name it in LIVESHAPE_CHROMIUM." >&2
    exit 1
}
