"""Packages of Debian or Ubuntu, unpacked into a folder: nothing is installed, nobody has to be root."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liveshape.errors import DeviceError

# Archives by their address, their release and their component; third parties have others of these.
_ADDRESS = re.compile(r".*/(debian|ubuntu)(-security|-ports)?/?")
_SUFFIXES = ("", "updates", "security", "backports")
_COMPONENTS = ("main", "universe")
_KEYS = "/usr/share/keyrings/{}-archive-keyring.gpg"


def sources(release: str | None) -> Iterator[str]:
    """Lines of sources.list: the archives of Debian or Ubuntu that this system knows, and the backports beside them; or
    those of another release at the same addresses.

    Example: `"\\n".join(sources("trixie"))`.
    """
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    system, codename = _distribution()
    lines: dict[str, None] = {}
    # Lists that were never fetched have no origin to ask for: the address tells, or, of a mirror, the release.
    for target in output_of("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines():
        address, known, component = target.split()
        plain, _, suffix = known.partition("-")
        match = _ADDRESS.fullmatch(address)
        if component not in _COMPONENTS or suffix not in _SUFFIXES or (match is None and plain != codename):
            continue
        keys = _KEYS.format(system if match is None else match[1])
        names = [known] if suffix else [release or plain, f"{release or plain}-backports"]
        if not suffix or release is None:
            lines |= dict.fromkeys(f"deb [signed-by={keys}] {address} {name} {component}" for name in names)
    if not lines:
        raise DeviceError("apt on this system knows no archive of Debian or Ubuntu: add one to /etc/apt/sources.list.d")
    yield from lines


def _distribution() -> tuple[str, str]:
    """Which of the two this system is or derives from, and the name of its release."""
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        return "debian", ""
    names = f"{told.get('ID', '')} {told.get('ID_LIKE', '')}".split()
    system = next((name for name in names if name in ("debian", "ubuntu")), "debian")
    return system, told.get("UBUNTU_CODENAME") or told.get("VERSION_CODENAME", "")


class Archive:
    """The packages of this system's archives, by package lists of our own: its own are neither locked nor changed.

    Of another release than the system's, where one is named, as if nothing were installed.

    Example: `Archive(work).unpack(work / "root", "patchelf")`.
    """

    def __init__(self, work: Path, release: str | None = None) -> None:
        self.work, self.release = work, release
        for part in ("lists/partial", "cache/archives/partial"):
            (work / part).mkdir(parents=True)
        (work / "sources.list").write_text("\n".join(sources(release)) + "\n")
        self.apt = [
            *("apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
            *("-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}/cache", "-o", "Debug::NoLocking=1"),
            *("-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=20"),
        ]
        if release is not None:
            (work / "status").touch()
            self.apt += ["-o", f"Dir::State::status={work}/status"]
        reason = output_of(*self.apt, "update", errors=True)
        if not any((work / "lists").glob("*_Packages*")):  # apt-get only warns
            raise DeviceError(
                "no package list could be fetched: is this machine offline? Try again where apt-get reaches an archive "
                f"(http_proxy names a proxy){_last_lines(reason)}"
            )

    def unpack(self, root: Path, *packages: str, newest: bool = False) -> str:
        """Fill a folder with packages and what of theirs the system lacks; the newest may come from the backports.

        Returns the upstream version of the first one.
        """
        options = ["--reinstall", "--download-only", "--yes", "--no-install-recommends"]
        if newest:
            lists = [path.name for path in (self.work / "lists").glob("*-backports_*_Packages*")]
            options += [option for name in lists[:1] for option in ("-t", name.split("_dists_")[1].split("_")[0])]
        output_of(*self.apt, "install", *options, *packages)
        files = sorted((self.work / "cache" / "archives").glob("*.deb"))
        version = next(file.name.split("_")[1] for file in files if file.name.startswith(f"{packages[0]}_"))
        for file in files:
            output_of("dpkg-deb", "-x", str(file), str(root))
            file.unlink()
        return version.split("-")[0]


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A folder to work in, on the disk of `folder`; what `work / "new"` has at the end takes its place: all of it, or,
    after an error or an interrupt, nothing.

    Example: `with replacing(folder) as work: (work / "new").mkdir()`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        work = Path(name)
        yield work
        if folder.exists():
            folder.rename(work / "old")
        try:
            (work / "new").rename(folder)
        except BaseException:
            if not folder.exists() and (work / "old").exists():
                (work / "old").rename(folder)
            raise


def check_tools() -> None:
    """Raise where there is no apt-get to fetch packages with.

    Example: `check_tools()` before an `Archive`.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise DeviceError(
            "the software driver comes from packages of Debian or Ubuntu, and there is no apt-get here. Install Mesa's "
            "with the package manager of this system: mesa-vulkan-drivers (Fedora, RHEL), vulkan-swrast (Arch), "
            "libvulkan_lvp (openSUSE), mesa-vulkan-swrast and vulkan-loader (Alpine); macOS and Windows have adapters "
            "of their own"
        )


def output_of(*command: str, errors: bool = False) -> str:
    """What a command prints, its errors too where they are asked for; DeviceError with its last lines where it fails.

    >>> output_of("echo", "yes")
    'yes\\n'
    """
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeviceError(f"{command[0]} failed ({done.returncode}){_last_lines(done.stdout + done.stderr)}")
    return done.stdout + done.stderr if errors else done.stdout


def _last_lines(text: str) -> str:
    lines = text.strip().splitlines()[-5:]
    return "\n".join([":", *lines]) if lines else ""
