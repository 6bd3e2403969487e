"""How much memory is free for this process, by the limits of the machine, of its control groups and of the process."""

import math
import os
import resource
from pathlib import Path

import torch

# The share of the free memory that data may take; the rest is for factors, predictors and the interpreter.
SHARE = 0.5


def budget(device: torch.device) -> int:
    """Bytes that data may occupy on a device."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available()
    return int(SHARE * free)


def available() -> int:
    """Bytes of host memory that are free for this process."""
    shared = min(_machine(), *_control_groups()) // _ranks_here()
    return max(0, min(shared, _process()))


def _ranks_here() -> int:
    """How many ranks a launcher has started on this machine, this one included."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    return 1


def parse(amount: str | int | float) -> int:
    """Bytes from a number or text such as ``"3GB"`` or ``"512 MiB"``."""
    text = str(amount).strip().lower().removesuffix("b")
    power = {"k": 1, "m": 2, "g": 3, "t": 4}
    base = 1000
    if text.endswith("i"):
        base, text = 1024, text[:-1]
    factor = base ** power[text[-1]] if text and text[-1] in power else 1
    try:
        size = float(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        size = 0.0
    if not 1 <= size < math.inf:
        raise ValueError(f"memory={amount!r} must be a positive number of bytes, or text such as '2GB'")
    return int(size)


def _machine() -> int:
    """The bytes that Linux says are available; elsewhere half of what the machine has."""
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _process() -> int:
    """The bytes that the limits on address space and on data leave."""
    pages = [int(count) for count in "".join(_lines(Path("/proc/self/statm"))).split()]
    if not pages:
        # Only Linux tells how much of the limits is used.
        return 1 << 62
    size, data = pages[0] * resource.getpagesize(), pages[5] * resource.getpagesize()
    left = [1 << 62]
    for limit, used in ((resource.RLIMIT_AS, size), (resource.RLIMIT_DATA, data)):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY:
            left.append(soft - used)
    return min(left)


def _control_groups() -> list[int]:
    """The bytes that the memory limits of the process's control groups leave, in version 1 or 2 of their files."""
    left = [1 << 62]
    for line in _lines(Path("/proc/self/cgroup")):
        _, kinds, name = line.split(":", 2)
        unified = kinds == ""
        if not unified and "memory" not in kinds.split(","):
            continue
        root = Path("/sys/fs/cgroup") if unified else Path("/sys/fs/cgroup/memory")
        names = ("memory.max", "memory.current") if unified else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        here = root / name.lstrip("/")
        for folder in (here, *here.parents):
            limit, used = (_number(folder / file) for file in names)
            if limit is not None and used is not None:
                left.append(limit - used + _file_cache(folder))
            if folder == root:
                break
    return left


def _file_cache(folder: Path) -> int:
    """Bytes of cached files, which the system can free."""
    for line in _lines(folder / "memory.stat"):
        name, value = line.split()
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
