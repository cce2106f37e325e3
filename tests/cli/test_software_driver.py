"""`liveshape devices --install-software-driver`, with programs in the place of apt-get, dpkg-deb and patchelf."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from liveshape import driver_folder
from liveshape.device.backends import list_adapters
from liveshape.errors import DeviceError
from liveshape.tools import driver_packages
from liveshape.tools.debian_archive import Archive
from tests.cli.calls import Capture, call

APT = """#!/bin/sh
for option; do case $option in
    Dir::Cache=*) cache=${option#*=} ;;
    Dir::State::lists=*) lists=${option#*=} ;;
    --print-needed) echo libneeded.so.1 libc.so.6; exit ;;
    --set-rpath) exit ;;
esac; done
case "$*" in
*indextargets*) cat "$0.targets" ;;
*update) echo "W: Failed to fetch http://deb.debian.org  Could not resolve" >&2
    [ -e "$0.offline" ] || touch "$lists/deb.debian.org_debian_dists_bookworm-backports_main_binary-amd64_Packages" ;;
*install*) echo "$*" > "$0.asked"; touch "$cache/archives/mesa-vulkan-drivers_25.0.7-2_amd64.deb" ;;
-x*) mkdir -p "$3/usr/bin" "$3/usr/lib"; cp "$0" "$3/usr/bin/patchelf"
    for name in libvulkan_lvp.so libvulkan.so.1 libneeded.so.1 libother.so; do echo $name > "$3/usr/lib/$name"; done ;;
esac
"""
TARGETS = """\
http://deb.debian.org/debian bookworm main
http://deb.debian.org/debian bookworm-updates main
https://download.docker.com/linux/debian bookworm stable
https://packages.example.com/apt cloud main
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    list_adapters()  # by the driver of the tests, not by what is unpacked here
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (folder / name).write_text(APT)
        (folder / name).chmod(0o755)
    (folder / "apt-get.targets").write_text(TARGETS)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    return folder


def test_a_driver_is_unpacked_and_replaces_the_old_one(programs: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = driver_folder.driver_folders()[0]
    assert folder == tmp_path / "env" / "share" / "liveshape" / "vulkan"
    folder.mkdir(parents=True)
    (folder / "of the old one").touch()
    code, out, err = call(capsys, "devices", "--json", "--install-software-driver")
    assert code == 0, err
    assert json.loads(out)["adapters"]
    assert f"in {folder};" in err
    assert "Mesa 25.0.7 is there" in err
    files = ["driver.json", "libneeded.so.1", "libvulkan.so.1", "libvulkan_lvp.so"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert json.loads((folder / "driver.json").read_text())["ICD"]["library_path"] == str(folder / "libvulkan_lvp.so")
    assert list(folder.parent.iterdir()) == [folder]
    assert "-t bookworm-backports mesa-vulkan-drivers" in (programs / "apt-get.asked").read_text()


@pytest.mark.usefixtures("programs")
def test_an_interrupt_leaves_the_old_driver_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "vulkan"
    folder.mkdir()
    (folder / "driver.json").write_text("old")
    for stop in range(driver_packages.STEPS):
        steps: list[str] = []

        def begin(step: str, stop: int = stop, steps: list[str] = steps) -> None:
            steps.append(step)
            if len(steps) > stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            driver_packages.install(folder, begin)
        assert (folder / "driver.json").read_text() == "old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["programs", "vulkan"]


def test_offline_and_other_systems_are_told_what_to_do(programs: Path, tmp_path: Path, capsys: Capture) -> None:
    (programs / "apt-get.offline").touch()
    code, _, err = call(capsys, "devices", "--install-software-driver")
    assert code == 1
    assert "is this machine offline?" in err
    assert "Could not resolve" in err
    assert not list((tmp_path / "env" / "share" / "liveshape").iterdir())
    (programs / "apt-get.targets").write_text("https://packages.example.com/apt cloud main\n")
    with pytest.raises(DeviceError, match=r"no archive of Debian or Ubuntu: add one"):
        Archive(tmp_path / "archive")
    for name in ("apt-get", "dpkg-deb"):
        (programs / name).unlink()


def test_without_apt_the_packages_of_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = call(capsys, "devices", "--install-software-driver")
    assert code == 1
    assert "there is no apt-get here" in err
    assert "vulkan-swrast (Arch)" in err


def test_archives_are_those_of_the_distribution(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Archive(tmp_path / "debian")
    written = (tmp_path / "debian" / "sources.list").read_text().splitlines()
    keys = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian"
    assert written == [f"{keys} {release} main" for release in ("bookworm", "bookworm-backports", "bookworm-updates")]
    (programs / "apt-get.targets").write_text(
        "http://archive.ubuntu.com/ubuntu noble universe\nhttp://archive.ubuntu.com/ubuntu noble-backports universe\n"
    )
    Archive(tmp_path / "ubuntu")
    written = (tmp_path / "ubuntu" / "sources.list").read_text().splitlines()
    assert [line.split()[-2] for line in written] == ["noble", "noble-backports"]
    assert "ubuntu-archive-keyring.gpg" in written[0]
    told = {"ID": "ubuntu", "VERSION_CODENAME": "noble"}
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: told)
    mirror = "mirror+file:/etc/apt/mirrors.txt"
    (programs / "apt-get.targets").write_text(f"{mirror} noble-updates main\n{mirror} noble-pgdg main\n")
    Archive(tmp_path / "mirror")
    line = f"deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] {mirror} noble-updates main\n"
    assert (tmp_path / "mirror" / "sources.list").read_text() == line


def test_without_an_environment_the_driver_is_among_the_users_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert driver_folder.driver_folders()[0] == tmp_path / "liveshape" / "vulkan"
