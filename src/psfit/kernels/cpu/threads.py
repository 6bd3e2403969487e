"""Threads that compiled loops share: they are started once, because a start takes longer than many searches.

Torch sets the number of threads, so that processes that share a machine share its cores.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TypeVar

import torch

from psfit.common.environment import count_cores

T = TypeVar("T")

# Threads besides the calling one, by process and number: after a fork those of the process before do not exist.
_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}
# The number of threads that the user allows, while torch has one.
_ALLOWED: ContextVar[int | None] = ContextVar("allowed", default=None)


@contextmanager
def limit_threads(most: int | None) -> Iterator[None]:
    """Let torch, and so the compiled loops, use at most so many threads: -1 means all cores, None changes nothing."""
    before = torch.get_num_threads()
    wanted = before if most is None else count_cores() if most < 0 else most
    if wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def use_one_thread(small: bool) -> Iterator[None]:
    """Let torch compute in one thread if its products are small; compiled loops keep all threads.

    A small product gains nothing by a second thread. But torch's threads wait actively for each other, and if the
    machine has other work, each product waits for a core.
    """
    allowed = torch.get_num_threads()
    if not small or allowed == 1:
        yield
        return
    token = _ALLOWED.set(allowed)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)
        _ALLOWED.reset(token)


def run_parts(parts: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all functions; each thread, the calling one too, takes the next part when it is ready."""
    others = min(_ALLOWED.get() or torch.get_num_threads(), len(parts)) - 1
    if others < 1:
        return [part() for part in parts]
    results: dict[int, T] = {}
    numbers = count()

    def work() -> None:
        while (number := next(numbers)) < len(parts):
            results[number] = parts[number]()

    key = os.getpid(), others
    if key not in _POOLS:
        _POOLS[key] = ThreadPoolExecutor(others)
    helping = [_POOLS[key].submit(work) for _ in range(others)]
    try:
        work()
    finally:
        for one in helping:
            # A thread that has not begun is not needed any more.
            if not one.cancel():
                one.result()
    return [results[number] for number in range(len(parts))]
