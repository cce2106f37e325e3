"""`liveshape check --selftest`: right on the software adapter, sees broken kernels, needs no torch, refuses damage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.platforms import PAGE, ROWS, page, row_of
from liveshape.check.selftest import FAILED, NO_HALF, NOT_RUN, PASSED, run_sweep, selftest, tallied
from liveshape.check.sweeps import FILE, Sweep, load_sweeps, save_sweeps, shipped_sweeps
from liveshape.cli import main
from liveshape.device.backends import open_device
from liveshape.errors import DeviceError, FormatError, UnsupportedError
from liveshape.graph import Tensor
from tests.check.goldens import NO_SWEEP, by_name, sizes_of, sweep_of, without_sweep
from tests.check.mutants import KINDS, broken

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "liveshape" / "check" / FILE
MOST_BYTES = 2 << 20  # of the wheel
SOME = "hypot float"  # a family's part that is run often here


@cache
def sweeps() -> list[Sweep]:
    return shipped_sweeps()


def families() -> list[str]:
    return sorted({sweep.family for sweep in sweeps()})


def named(part: str) -> list[Sweep]:
    return [sweep for sweep in sweeps() if part in sweep.name]


def full(part: str) -> list[Sweep]:
    """Those that every adapter runs."""
    return [sweep for sweep in named(part) if "float16" not in sweep.dtypes]


@pytest.mark.parametrize("family", sorted({sweep.family for sweep in full("")}))
def test_a_sweep_of_every_family_passes(family: str) -> None:
    own = [sweep for sweep in full("") if sweep.family == family]
    (outcome,) = selftest([min(own, key=lambda sweep: len(sweep.name))], open_device)
    assert outcome.status == PASSED, outcome
    assert (outcome.difference, outcome.value, outcome.shapes) == (None, "", {})


@pytest.mark.slow
@pytest.mark.parametrize("family", families())
def test_all_sweeps_pass(family: str) -> None:
    found = selftest([sweep for sweep in sweeps() if sweep.family == family], open_device)
    assert not [outcome for outcome in found if outcome.status != PASSED and outcome.reason != NO_HALF]


def test_what_is_shipped_is_what_torch_gives() -> None:
    for shipped in sweeps()[::23]:
        made = sweep_of(by_name()[shipped.name], sizes_of(shipped))
        assert (made.node.name, made.tolerance, made.dtypes) == (shipped.node.name, shipped.tolerance, shipped.dtypes)
        assert [value.name for value in made.values] == [value.name for value in shipped.values]
        for here, there in zip(made.calls, shipped.calls, strict=True):
            for ours, theirs in ((here.given, there.given), (here.want, there.want)):
                assert len(ours) == len(theirs)
                for one, other in zip(ours.values(), theirs.values(), strict=True):
                    # Another CPU may round the last bit of a golden.
                    np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6, err_msg=shipped.name)


def test_the_same_sweeps_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.npz", "other.npz"):
        save_sweeps(tmp_path / name, load_sweeps(SHIPPED)[::50])
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_sweeps_fit_in_a_wheel() -> None:
    assert SHIPPED.stat().st_size < MOST_BYTES


def test_every_operator_with_a_kernel_has_a_sweep_or_a_reason() -> None:
    assert without_sweep(sweeps()) == NO_SWEEP.keys()
    assert len(NO_SWEEP) <= 30, "a list of exceptions that grows"


def test_shapes_are_live() -> None:
    """An operator with dynamic sizes is run at its bound and below; few have one size alone."""
    several = [sweep for sweep in sweeps() if len(sweep.calls) > 1]
    assert len(several) > 0.95 * len(sweeps())
    for sweep in several:
        sizes = sizes_of(sweep)
        assert sizes[0] == max(sizes)
        assert len(set(sizes)) == len(sizes)
        bounds = {
            value: np.shape(array) == value.max_shape
            for value, array in sweep.calls[0].given.items()
            if isinstance(value, Tensor)
        }
        assert all(bounds.values()), f"{sweep.name}: the first call is not at the bound"
    kinds = {dtype for sweep in sweeps() for dtype in sweep.dtypes}
    assert kinds >= {"float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"}


@pytest.mark.parametrize("part", ["_softmax", "cumsum", "rms_norm float32"])
def test_a_broken_kernel_is_named(part: str) -> None:
    sweep = next(sweep for sweep in sweeps() if part in f"{sweep.node.name} {sweep.name}" and "float32" in sweep.dtypes)
    right = run_sweep(sweep, open_device())
    assert right.status == PASSED
    kernel = right.kernels[0].partition("<")[0]
    for _, old, new in KINDS:
        with broken(kernel, old, new):
            (outcome,) = selftest([sweep], open_device)
        if outcome.status == FAILED and outcome.difference is not None:
            break
    assert outcome.status == FAILED
    assert (outcome.operator, outcome.kernels[0]) == (sweep.node.name, right.kernels[0])
    assert outcome.shapes
    assert run_sweep(sweep, open_device()).status == PASSED, "the right kernel is back"


def test_a_race_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass gives other bytes, within the tolerance."""
    from liveshape.check import selftest as module
    from liveshape.check.checking import REPEATED

    turns = iter(range(100))

    class Racing(module.SingleNode):
        def run(self, known: Any) -> Any:
            factor = np.float32(1 + 1e-6 * next(turns))
            return {value: array * factor for value, array in super().run(known).items()}

    monkeypatch.setattr(module, "SingleNode", Racing)
    outcome = run_sweep(named("hypot float32")[0], open_device())
    assert (outcome.status, outcome.reason) == (FAILED, REPEATED)


class Gone:
    """A device that is lost at its first use."""

    def __init__(self) -> None:
        self.limits, self.lost = open_device().limits, False

    def __getattr__(self, name: str) -> Any:
        self.lost = True
        raise DeviceError("the driver is gone")


def test_a_lost_device_fails_one_sweep_and_the_next_has_another() -> None:
    devices: Iterator[Any] = iter([Gone(), open_device()])
    told: list[str] = []
    chosen = full(SOME)[:2]
    first, second = selftest(chosen, lambda: next(devices), told.append)
    assert (first.status, "driver is gone" in first.reason) == (FAILED, True)
    assert second.status == PASSED
    assert told == [sweep.name for sweep in chosen]


def test_a_device_that_cannot_be_opened_again_fails_the_rest() -> None:
    devices = iter([Gone()])

    def opened() -> Any:
        for device in devices:
            return device
        raise DeviceError("no adapter")

    outcomes = selftest(full(SOME)[:2], opened)
    assert [outcome.status for outcome in outcomes] == [FAILED, FAILED]
    assert "could not be opened again" in outcomes[1].reason


def test_a_device_without_f16_does_not_run_halves() -> None:
    device = open_device(limits=replace(open_device().limits, half=False))
    outcomes = selftest(named(SOME), lambda: device)
    by_status = {outcome.status: outcome for outcome in outcomes}
    assert by_status.keys() == {PASSED, NOT_RUN}
    assert by_status[NOT_RUN].reason == NO_HALF
    (tally,) = tallied(outcomes, lambda outcome: "all")
    assert (tally.not_run, tally.reasons) == (sum("float16" in sweep.dtypes for sweep in named(SOME)), (NO_HALF,))


def test_what_a_device_cannot_take_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.check import selftest as module

    def refuse(*_: Any) -> Any:
        raise UnsupportedError("a kernel of 9 bindings, the device has 8")

    monkeypatch.setattr(module, "SingleNode", refuse)
    outcome = run_sweep(full(SOME)[0], open_device())
    assert (outcome.status, outcome.reason) == (NOT_RUN, "a kernel of 9 bindings, the device has 8")


def _repacked(path: Path, change: Any) -> None:
    with np.load(SHIPPED) as archive:
        arrays = {name: archive[name] for name in archive.files}
    change(arrays)
    np.savez(path, **arrays)


def _manifest(arrays: dict[str, Any], change: Any) -> None:
    manifest = json.loads(arrays["manifest"].tobytes())
    change(manifest)
    arrays["manifest"] = np.frombuffer(json.dumps(manifest).encode(), np.uint8)


DAMAGES = {
    "version": (lambda a: _manifest(a, lambda m: m.update(version=99)), "version 99"),
    "operator": (lambda a: _manifest(a, lambda m: m["sweeps"][0].update(operator="nothing")), "has no kernel"),
    "no manifest": (lambda a: a.pop("manifest"), "damaged"),
    "no elements": (lambda a: a.pop("float32"), "damaged"),
    "few elements": (lambda a: a.update(float32=a["float32"][:-1]), "not in the file"),
    "many elements": (lambda a: a.update(float32=np.append(a["float32"], np.float32(0))), "belong to no array"),
    "shape": (
        lambda a: _manifest(a, lambda m: m["sweeps"][0]["calls"][0][1].update({"0": ["float32", [-1]]})),
        "not in",
    ),
    "objects": (lambda a: a.update(float32=np.array([{}], object)), "damaged"),
}


@pytest.mark.parametrize(("change", "said"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    _repacked(tmp_path / "bad.npz", change)
    with pytest.raises(FormatError, match=said):
        load_sweeps(tmp_path / "bad.npz")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", SHIPPED.read_bytes()[:5000], b"no archive" * 9])
def test_a_file_that_was_cut_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "cut.npz").write_bytes(data)
    with pytest.raises(FormatError, match="reinstall it"):
        load_sweeps(tmp_path / "cut.npz")


def test_flipped_bits_are_refused(tmp_path: Path) -> None:
    data = bytearray(SHIPPED.read_bytes())
    data[len(data) // 2] ^= 0x55
    (tmp_path / "flipped.npz").write_bytes(data)
    with pytest.raises(FormatError, match="reinstall it"):
        load_sweeps(tmp_path / "flipped.npz")


def test_an_installation_without_sweeps(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="has no sweeps"):
        load_sweeps(tmp_path / "missing.npz")


def test_the_command_ends_in_a_table_and_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--selftest", "--only", SOME]) == 0
    out = " ".join(capsys.readouterr().out.split())
    (file,) = tmp_path.glob("liveshape-selftest-*.json")
    assert "family sweeps passed failed not run" in out
    assert f"nothing failed; attach {file.name}" in out
    report = json.loads(file.read_text())
    device = open_device()
    assert report["adapter"]["name"] == device.name
    assert report["limits"]["max_bindings"] == device.limits.max_bindings
    run = named(SOME) if device.limits.half else full(SOME)
    assert (report["passed"], report["failed"], report["only"]) == (len(run), 0, SOME)
    assert len(report["refused"]) == report["not_run"] == len(named(SOME)) - len(run)
    assert report["packages"].keys() >= {"numpy", device.adapter.library.replace("dawn", "wgpudawn")}
    (family,) = report["families"]
    assert (family["name"], family["passed"]) == ("pointwise", len(run))


def test_the_command_names_what_failed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    with broken("pointwise/hypot", "hypotenuse(x0, x1)", "(x0 + x1)"):
        assert main(["check", "--selftest", "--only", SOME, "--report", str(file)]) == 1
        out = " ".join(capsys.readouterr().out.split())
        assert main(["check", "--selftest", "--only", SOME, "--report", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text())
    assert "aten::hypot.out, hypot float32 column: its values differ from torch's" in out
    assert "kernels pointwise/hypot<" in out
    failures = json.loads(file.read_text())["failures"]
    assert {failure["sweep"] for failure in failures} >= {sweep.name for sweep in full(SOME)}
    assert all(failure["difference"]["wrong"] > 0 for failure in failures)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--selftest"], "takes no program, 'demo' was given"),
        (["--selftest", "--replay", "case.npz"], "takes no program"),
        (["--selftest", "--only", "nonsense"], "families are attention"),
        (["--selftest", "--report", "no/such/report.json"], "does not exist"),
        (["demo", "--only", "relu"], "belong to --selftest"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_it_needs_numpy_wgpu_and_rich_alone(tmp_path: Path) -> None:
    blocked = ("torch", "executorch", "torchao", "tokenizers", "jinja2", "flatbuffers", "tests", "bench")
    code = f"""
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from liveshape.cli import main
sys.exit(main(["check", "--selftest", "--only", "{SOME}", "--report", sys.argv[1]]))
"""
    file = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["passed"] >= len(full(SOME)) > 0


def test_the_page_of_platforms_is_that_of_the_reports() -> None:
    rows = json.loads(ROWS.read_text())
    assert rows
    assert page(PAGE.read_text(), rows) == PAGE.read_text()
    with pytest.raises(SystemExit, match="without --only"):
        row_of({"only": "conv"})
