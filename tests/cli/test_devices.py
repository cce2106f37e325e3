"""`liveshape devices`: adapters are listed and chosen, and none at all is an error with the fix."""

from __future__ import annotations

import json

import pytest

from liveshape.device import backends
from tests.cli.calls import Capture, call
from tests.runtime.files import several


def test_devices_lists_and_chooses(capsys: Capture) -> None:
    code, out, _ = call(capsys, "devices")
    listed = backends.list_adapters()
    assert code == 0
    assert all(adapter.name in out for adapter in listed)
    code, out, _ = call(capsys, "devices", "--json", "--device", listed[-1].index)
    document = json.loads(out)
    assert (code, document["chosen"]) == (0, listed[-1].index)
    assert document["adapters"][-1]["max_buffer_bytes"] == listed[-1].max_buffer_bytes


def test_devices_without_the_wanted_one(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVESHAPE_DEVICE", "no such gpu")
    code, out, err = call(capsys, "devices")
    assert code == 3
    assert "adapters" in out
    assert "no such gpu" in err
    names = ", ".join(f"{adapter.name} (index {adapter.index})" for adapter in backends.list_adapters())
    assert f"this machine has {names}\n" in err


@pytest.mark.usefixtures("no_adapter")
def test_no_adapter_is_3_with_the_fix(capsys: Capture) -> None:
    for arguments in (("devices",), ("run", several()), ("inspect", several(), "--device", "nvidia")):
        code, _, err = call(capsys, *arguments)
        assert code == 3
        assert "driver" in err
