"""A part of the launcher's store that ranks before a restart have not written to.

torchrun keeps its store when it restarts ranks, with the addresses of the ranks that have ended; a group made from
these addresses waits forever. So the first rank makes a new name and gives it to every rank that runs now:

    rank r   writes a random number to  hello/r,  and waits for a reply that repeats it
    rank 0   replies to every hello, again if it changes, until all ranks have acknowledged the name
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

PAUSE = 0.01


class GivenUpError(RuntimeError):
    """The engine that started this rank has given up the job."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for the other ranks: until a moment, or until somebody says that they will not come."""

    deadline: float
    is_given_up: Callable[[], bool]

    def wait(self, done: Callable[[], bool], complaint: Callable[[], str]) -> None:
        while not done():
            if self.is_given_up():
                raise GivenUpError(f"{complaint()}: the job was given up")
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"{complaint()}; start all ranks of the job, with the same number of them")
            time.sleep(PAUSE)


def fresh_store(
    store: dist.Store, rank: int, size: int, timeout: float, is_given_up: Callable[[], bool] = lambda: False
) -> dist.Store:
    """The part of `store` that belongs to the ranks that run now."""
    patience = Patience(time.monotonic() + timeout, is_given_up)
    name = _give_name(store, size, patience) if rank == 0 else _get_name(store, rank, patience)
    return dist.PrefixStore(name, store)


def _give_name(store: dist.Store, size: int, patience: Patience) -> str:
    name, answered = uuid.uuid4().hex, dict.fromkeys(range(1, size), "")

    def all_have_it() -> bool:
        for rank, before in list(answered.items()):
            if store.check([f"ack/{name}/{rank}"]):
                del answered[rank]
            elif store.check([f"hello/{rank}"]):
                hello = store.get(f"hello/{rank}").decode()
                if hello != before:
                    store.set(f"reply/{rank}", f"{hello} {name}")
                    answered[rank] = hello
        return not answered

    patience.wait(all_have_it, lambda: f"ranks {sorted(answered)} did not start")
    return name


def _get_name(store: dist.Store, rank: int, patience: Patience) -> str:
    hello = uuid.uuid4().hex
    store.set(f"hello/{rank}", hello)

    def has_reply() -> bool:
        return store.check([f"reply/{rank}"]) and store.get(f"reply/{rank}").decode().startswith(hello)

    patience.wait(has_reply, lambda: "rank 0 did not start")
    name = store.get(f"reply/{rank}").decode().split()[1]
    store.set(f"ack/{name}/{rank}", "")
    return name
