"""The open nodes against a sorted list."""

from math import inf

import pytest
import torch

from psfit.certificate.open_nodes import OpenNodes


@pytest.mark.parametrize("deepest", [False, True])
def test_nodes_come_out_by_bound_or_by_depth(deepest):
    generator = torch.Generator().manual_seed(0)
    nodes, known, number = OpenNodes(torch.device("cpu")), [], 0
    for round_ in range(40):
        count = int(torch.randint(0, 60, (1,), generator=generator))
        lower = torch.rand(count, generator=generator, dtype=torch.float64)
        depth = (number + torch.randperm(count, generator=generator)) * 7919 % 10_007
        names = torch.arange(number, number + count)
        nodes.add(lower, depth, (names, names.unsqueeze(1).double().expand(count, 3)))
        known += list(zip(lower.tolist(), depth.tolist(), names.tolist(), strict=True))
        number += count
        if round_ % 7 == 6:
            assert nodes.close(0.8) == min([low for low, _, _ in known if low >= 0.8], default=inf)
            known = [node for node in known if node[0] < 0.8]
        known.sort(key=lambda node: -node[1] if deepest else node[0])
        lows, (taken, rows) = nodes.take(20, deepest)
        assert lows.tolist() == [low for low, _, _ in known[:20]]
        assert taken.tolist() == [name for _, _, name in known[:20]]
        assert torch.equal(rows[:, 2], taken.double())
        known = known[20:]
        assert len(nodes) == len(known)
        assert nodes.lowest == min([low for low, _, _ in known], default=inf)
