"""fp32 or bf16, by what the device can really do.

Some processors advertise bf16 and then kill the process that uses it (SIGILL), so the question is put to a child
process that runs bf16 matrix products, attention and their gradients, compares them with fp32 and times both.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from copilot4d.errors import UsageError

PrecisionName = Literal["auto", "fp32", "bf16"]
WORTHWHILE_SPEEDUP = 1.2  # below this, bf16 costs accuracy and buys nothing
PROBE_SECONDS = 120.0

# Runs in the child. Prints one JSON line; a child that dies instead is the answer too.
PROBE = """
import json, sys, time
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device(sys.argv[1])
block = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, norm_first=True)
net = nn.ModuleDict({"conv": nn.Conv2d(16, 16, 3, padding=1), "block": block, "wide": nn.Linear(256, 1024)}).to(device)
x = torch.randn(16, 16, 16, 64, device=device)
def once(bf16):
    net.zero_grad()
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        y = net["conv"](x).flatten(2).transpose(1, 2).reshape(16, 64, 256)
        y = net["wide"](net["block"](y))
        loss = y.float().square().mean()
    loss.backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return y.detach().float(), block.linear1.weight.grad.clone()
def seconds(bf16):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        once(bf16)
        times.append(time.perf_counter() - start)
    return sorted(times)[2]
(y32, g32), (y16, g16) = once(False), once(True)
error = max(float((y16 - y32).abs().max() / y32.abs().max()), float((g16 - g32).norm() / g32.norm()))
print(json.dumps({"error": error, "speedup": seconds(False) / seconds(True)}))
"""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a child process found out about bf16 on a device."""

    works: bool
    speedup: float  # time in fp32 / time in bf16; 0 where it does not work
    detail: str


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The chosen precision and why."""

    name: Literal["fp32", "bf16"]
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """What autocast computes in."""
        return torch.bfloat16 if self.name == "bf16" else torch.float32

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context for forward passes; does nothing in fp32."""
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.name == "bf16")


def choose_precision(wanted: PrecisionName, device: torch.device, *, cache: Path | None = None) -> Precision:
    """ "auto" takes bf16 where it works and is faster; "bf16" where it does not work is an error that says why."""
    if wanted not in ("auto", "fp32", "bf16"):
        raise UsageError(f"training.precision must be auto, fp32 or bf16, got {wanted!r}")
    if wanted == "fp32":
        return Precision(name="fp32", reason="asked for")
    probe = probe_bf16(device.type, default_cache() if cache is None else cache)
    if wanted == "bf16":
        if probe.works:
            return Precision(name="bf16", reason="asked for; the probe passed")
        raise UsageError(
            f"training.precision bf16 does not work on this {device.type} device: {probe.detail}. Use fp32 or auto"
        )
    if probe.works and probe.speedup >= WORTHWHILE_SPEEDUP:
        return Precision(name="bf16", reason=f"{probe.speedup:.1f}x the speed of fp32 here")
    why = f"bf16 runs at {probe.speedup:.1f}x the speed of fp32 here" if probe.works else f"bf16: {probe.detail}"
    return Precision(name="fp32", reason=why)


def default_cache() -> Path:
    """Where probe results are kept between runs: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "copilot4d" / "precision.json"


@functools.cache
def probe_bf16(device_type: str, cache: Path | None) -> Probe:
    """The answer of a child process, asked once per machine, torch version and relevant environment."""
    key = machine_key(device_type)
    known = _read_cache(cache)
    if key in known:
        return known[key]
    probe = run_probe(device_type)
    if cache is not None:
        _write_cache(cache, {**known, key: probe})
    return probe


def run_probe(device_type: str, code: str = PROBE) -> Probe:
    """Ask a child process now."""
    command = [sys.executable, "-c", code, device_type]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Probe(works=False, speedup=0.0, detail=f"the probe did not end within {PROBE_SECONDS:.0f} s")
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return Probe(works=False, speedup=0.0, detail=f"it kills the process ({name})")
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return Probe(works=False, speedup=0.0, detail=f"the probe failed: {last}")
    result = json.loads(child.stdout.strip().splitlines()[-1])
    if not result["error"] < 0.1:  # bf16 carries 8 bits: 1% is normal, 10% is broken
        return Probe(works=False, speedup=0.0, detail=f"results are wrong by {result['error']:.0%}")
    return Probe(works=True, speedup=float(result["speedup"]), detail=f"within {result['error']:.1%} of fp32")


def machine_key(device_type: str) -> str:
    """What the answer depends on: torch, the processor with its flags, the GPU, and oneDNN's environment."""
    parts = [device_type, torch.__version__, platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        parts += sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    if device_type == "cuda":
        parts.append(torch.cuda.get_device_name())
    parts += [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(("ONEDNN_", "DNNL_", "ATEN_CPU"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _read_cache(cache: Path | None) -> dict[str, Probe]:
    if cache is None:
        return {}
    try:
        entries = json.loads(cache.read_text())
        return {str(k): Probe(works=bool(v["works"]), speedup=float(v["speedup"]), detail=str(v["detail"]))
                for k, v in entries.items()}  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # a cache that cannot be read is asked again


def _write_cache(cache: Path, probes: dict[str, Probe]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary = cache.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({k: asdict(p) for k, p in probes.items()}, indent=1))
        temporary.replace(cache)
    except OSError:
        return  # read-only homes exist; the probe runs again next time
