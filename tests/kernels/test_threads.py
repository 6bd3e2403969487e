"""Threads that searches share."""

import threading

import pytest
import torch

from psfit.kernels.cpu.threads import run_parts, use_one_thread


@pytest.fixture
def threads():
    """Set the number of torch's threads."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("parts", [0, 1, 2, 7])
def test_results_have_the_order_of_the_parts(threads, count, parts):
    threads(count)
    assert run_parts([lambda k=k: k * k for k in range(parts)]) == [k * k for k in range(parts)]


def test_an_error_of_a_part_reaches_the_caller(threads):
    threads(2)

    def fail():
        raise RuntimeError("a part failed")

    for place in range(4):
        with pytest.raises(RuntimeError, match="a part failed"):
            run_parts([fail if k == place else lambda: 0 for k in range(4)])


def test_small_products_use_one_thread_and_searches_use_all(threads):
    threads(2)
    met = threading.Barrier(2, timeout=20)
    with use_one_thread(True):
        assert torch.get_num_threads() == 1
        # Each part waits for the other one, so they run at the same time.
        run_parts([met.wait, met.wait])
    assert torch.get_num_threads() == 2
    with use_one_thread(False):
        assert torch.get_num_threads() == 2


def test_the_number_of_threads_is_restored_after_an_error(threads):
    threads(2)
    with pytest.raises(RuntimeError, match="failed"), use_one_thread(True):
        raise RuntimeError("failed")
    assert torch.get_num_threads() == 2
