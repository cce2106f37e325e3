"""Unpack Mesa's software Vulkan driver from Debian's packages into a folder, without installing it and without root.

    python scripts/software_driver.py [--newest FOLDER] [--stable FOLDER]

The newest that this Debian has, backports included, and that of the release itself. Each folder gets `driver.json` for
VK_DRIVER_FILES, the driver with those libraries that the system lacks, and a Vulkan loader.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

DRIVER, LOADER, MANIFEST = "libvulkan_lvp.so", "libvulkan.so.1", "driver.json"
PACKAGES = ("mesa-vulkan-drivers", "libvulkan1", "patchelf")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def sources() -> Iterator[tuple[str, str, str]]:
    """The archives of Debian that this system knows, (address, release, component), and the backports beside them."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    told = _said("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    # Lists that were never fetched have no origin to ask for: the address tells.
    found = sorted({line for line in told.splitlines() if re.search(r"/debian(-security)?/? ", line)})
    if not found:
        raise SystemExit("software_driver.py: this system knows no archive of Debian")
    for address, release, component in map(str.split, found):
        yield address, release, component
        if "-" not in release:
            yield address, f"{release}-backports", component


class Archive:
    """Debian's packages with package lists of our own: the system's are neither locked nor changed."""

    def __init__(self, work: Path) -> None:
        self.work = work
        for part in ("lists/partial", "cache/archives/partial"):
            (work / part).mkdir(parents=True)
        known = list(sources())
        self.backports = next(release for _, release, _ in known if release.endswith("-backports"))
        lines = [f"deb [signed-by={KEYS}] {address} {release} {component}" for address, release, component in known]
        (work / "sources.list").write_text("\n".join(lines) + "\n")
        self.apt = [
            *("apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
            *("-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}/cache", "-o", "Debug::NoLocking=1"),
            *("-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3"),
        ]
        _said(*self.apt, "update")

    def bring(self, folder: Path, stable: bool) -> str:
        """Fill a folder atomically and return the version of Mesa."""
        fetched, root, made = self.work / "cache" / "archives", self.work / "root", self.work / "made"
        newest = () if stable else ("-t", self.backports)
        options = ("--reinstall", "--download-only", "--yes", "--no-install-recommends")
        _said(*self.apt, "install", *options, *newest, *PACKAGES)
        packages = sorted(fetched.glob("*.deb"))
        for package in packages:
            _said("dpkg-deb", "-x", str(package), str(root))
        _collect(root, made)
        version = next(package.name.split("_")[1] for package in packages if package.name.startswith(PACKAGES[0]))
        manifest = {"library_path": str(folder.resolve() / DRIVER), "api_version": "1.3.0"}
        (made / MANIFEST).write_text(json.dumps({"file_format_version": "1.0.0", "ICD": manifest}) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, folder)
        shutil.rmtree(root)
        for package in packages:
            package.unlink()
        return version.split("-")[0]


def _collect(root: Path, made: Path) -> None:
    """The driver, the loader and their unpacked dependencies, each with an rpath to its own folder."""
    libraries = {path.name: path for path in root.rglob("lib*.so*")}
    patchelf = str(root / "usr" / "bin" / "patchelf")
    made.mkdir()
    waiting = [DRIVER, LOADER]
    while waiting:
        name = waiting.pop()
        if name not in libraries or (made / name).exists():
            continue
        shutil.copyfile(libraries[name].resolve(), made / name)
        waiting += _said(patchelf, "--print-needed", str(made / name)).split()
        _said(patchelf, "--set-rpath", "$ORIGIN", str(made / name))


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise SystemExit(f"software_driver.py: {command[0]} failed ({done.returncode}):\n{told}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--newest", type=Path, metavar="FOLDER", help="for the newest driver, of the backports")
    parser.add_argument("--stable", type=Path, metavar="FOLDER", help="for the driver of the release itself")
    options = parser.parse_args()
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SystemExit("software_driver.py: it takes Debian's packages, and there is no apt-get here")
    with tempfile.TemporaryDirectory() as home:
        archive = Archive(Path(home))
        for folder, stable in ((options.newest, False), (options.stable, True)):
            if folder is not None:
                print(f"Mesa {archive.bring(folder, stable)} in {folder}")


if __name__ == "__main__":
    main()
