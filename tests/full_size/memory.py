"""What this process holds."""

from __future__ import annotations

from pathlib import Path


def memory_mb(what: str = "VmHWM") -> float:
    """VmHWM: the most that this program has held (ru_maxrss would count the process that started it); RssAnon: what is
    its own now, without the pages of mapped files, which processes share.
    """
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024
