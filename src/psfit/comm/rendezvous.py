"""Meeting again after a restart: a corner of the launcher's store that earlier, dead ranks have never written to.

torchrun keeps its store when it restarts ranks, and with it the addresses of those that died; a group made from these
waits for the dead. So the first rank makes up a name for this meeting and hands it to every rank that is alive now:

    rank r   writes a number that nobody else knows to  hello/r,  and waits for a reply that repeats it
    rank 0   replies to every hello, again if it changes, until all ranks have acknowledged the name
"""

import time
import uuid
from collections.abc import Callable

import torch.distributed as dist

PAUSE = 0.01


def fresh_store(store: dist.Store, rank: int, size: int, timeout: float) -> dist.Store:
    """The part of `store` that belongs to the ranks which are here now."""
    deadline = time.monotonic() + timeout
    name = _host(store, size, deadline) if rank == 0 else _greet(store, rank, deadline)
    return dist.PrefixStore(name, store)


def _host(store: dist.Store, size: int, deadline: float) -> str:
    name, answered = uuid.uuid4().hex, dict.fromkeys(range(1, size), "")

    def all_here() -> bool:
        for rank, before in list(answered.items()):
            if store.check([f"ack/{name}/{rank}"]):
                del answered[rank]
            elif store.check([f"hello/{rank}"]):
                hello = store.get(f"hello/{rank}").decode()
                if hello != before:
                    store.set(f"reply/{rank}", f"{hello} {name}")
                    answered[rank] = hello
        return not answered

    _wait(all_here, deadline, lambda: f"ranks {sorted(answered)} did not come")
    return name


def _greet(store: dist.Store, rank: int, deadline: float) -> str:
    hello = uuid.uuid4().hex
    store.set(f"hello/{rank}", hello)

    def replied() -> bool:
        return store.check([f"reply/{rank}"]) and store.get(f"reply/{rank}").decode().startswith(hello)

    _wait(replied, deadline, lambda: "rank 0 did not come")
    name = store.get(f"reply/{rank}").decode().split()[1]
    store.set(f"ack/{name}/{rank}", "")
    return name


def _wait(done: Callable[[], bool], deadline: float, complaint: Callable[[], str]) -> None:
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint()}; start all ranks of the job, with the same number of them")
        time.sleep(PAUSE)
