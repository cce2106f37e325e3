"""Mesa's software Vulkan driver from packages of Debian or Ubuntu, unpacked into a folder that the device looks in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from liveshape.driver_folder import DRIVER, LOADER, MANIFEST
from liveshape.tools.debian_archive import Archive, check_tools, output_of, replacing

PACKAGES = ("mesa-vulkan-drivers", "libvulkan1", "patchelf")
STEPS = 3  # that `install` names


def install(folder: Path, begin: Callable[[str], None], newest: bool = True) -> str:
    """Unpack the newest driver of this system's archives, backports included, or that of the release itself, into a
    folder, whole or not at all; returns the version of Mesa. `begin` is called with the name of each step.

    Example: `install(driver_folder(), print)`.
    """
    check_tools()
    with replacing(folder) as work:
        begin("software driver: package lists")
        archive = Archive(work / "archive")
        begin("software driver: packages (10 to 60 MB)")
        version = archive.unpack(work / "root", *PACKAGES, newest=newest)
        begin("software driver: unpacking")
        _collect(work / "root", work / "new")
        write_manifest(work / "new", folder)
    return version


def write_manifest(new: Path, folder: Path) -> None:
    """Write the file that tells a Vulkan loader where the driver of `folder` will be.

    Example: `write_manifest(work / "new", driver_folders()[0])`.
    """
    library = {"library_path": str(folder.resolve() / DRIVER), "api_version": "1.3.0"}
    (new / MANIFEST).write_text(json.dumps({"file_format_version": "1.0.0", "ICD": library}) + "\n")


def _collect(root: Path, new: Path) -> None:
    """The driver, the loader and their unpacked dependencies, each with an rpath to its own folder."""
    libraries = {path.name: path for path in root.rglob("lib*.so*")}
    patchelf = str(root / "usr" / "bin" / "patchelf")
    new.mkdir()
    waiting = [DRIVER, LOADER]
    while waiting:
        name = waiting.pop()
        if name not in libraries or (new / name).exists():
            continue
        shutil.copyfile(libraries[name].resolve(), new / name)
        waiting += output_of(patchelf, "--print-needed", str(new / name)).split()
        output_of(patchelf, "--set-rpath", "$ORIGIN", str(new / name))
