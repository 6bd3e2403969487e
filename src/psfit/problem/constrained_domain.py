"""From constraints on features to the domain of a problem's items, and to limits that count all items of a support."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from psfit.problem.box import CoefficientBox
from psfit.problem.completion import add_needed
from psfit.problem.constraints import Constraints
from psfit.problem.domain import Domain
from psfit.problem.heredity import Heredity
from psfit.problem.items import Items


def restrict_supports(domain: Domain, constraints: Constraints) -> Domain:
    """The supports of a domain that also obey constraints on the features."""
    return domain if constraints.is_empty else _decide(domain, constraints).tighten()[0]


def require_feasible(items: Items, limit: int, constraints: Constraints) -> None:
    """Refuse constraints that no support of at most so many items obeys."""
    domain = _decide(Domain.of(items, limit, torch.device("cpu")), constraints)
    tight, possible = domain.tighten()
    known = possible & ~(domain.inside & domain.outside).any()
    if not bool(known.all()) or not tight.allows(add_needed(tight, tight.inside[0])):
        raise ValueError(
            "include, exclude, at_most, heredity and kappa cannot hold together: the features that are included need "
            "others that are excluded, or more features than kappa or at_most allow"
        )
    bounded = constraints.lower is not None or constraints.upper is not None
    if domain.weights is not None and bounded:
        raise ValueError("kappa_counts='features' does not work with bounds on coefficients; use kappa_counts='groups'")


def _decide(domain: Domain, constraints: Constraints) -> Domain:
    items, device = domain.items, domain.inside.device
    inside, outside = domain.inside.clone(), domain.outside.clone()
    for mask, features in ((inside, constraints.include), (outside, constraints.exclude)):
        mask[:, items.items_of(torch.tensor(sorted(features), dtype=torch.long, device=device))] = True
    domain = domain.decide(inside, outside)
    if constraints.kind is not None and constraints.at_most is not None:
        domain = domain.with_groups(*_limit_kinds(items, constraints.kind, constraints.at_most, device))
    if constraints.parents and items.in_groups:
        raise ValueError("heredity is about single features, and group makes items of several; leave one of them out")
    if constraints.parents:
        domain = replace(domain, heredity=_pair_items(items, constraints, device))
    return domain


def _limit_kinds(items: Items, kind: np.ndarray, at_most: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """The groups of the items and how many of each are allowed; entries of each output have a limit of their own."""
    copies = items.size // items.features
    kinds = torch.as_tensor(kind, device=device).long().unsqueeze(1)
    group = torch.where(kinds >= 0, kinds * copies + torch.arange(copies, device=device), -1)
    return group.flatten(), torch.as_tensor(at_most, device=device).long().repeat_interleave(copies)


def _pair_items(items: Items, constraints: Constraints, device: torch.device) -> Heredity:
    pairs = [(child, parent) for child, parents in constraints.parents for parent in parents]
    child, parent = torch.tensor(pairs, device=device).T
    return Heredity(items.items_of(child), items.items_of(parent), items.size, constraints.heredity == "strong")


def count_extra(items: Items, constraints: Constraints) -> int:
    """How many items are included in every support without being counted by kappa."""
    if constraints.count_included or not constraints.include:
        return 0
    included = items.items_of(torch.tensor(sorted(constraints.include)))
    return len(included) if items.weights is None else int(items.weights[included].sum())


def most_counted(items: Items, constraints: Constraints) -> int:
    """The largest limit that a support can use: not more than the items that it may have, and kappa counts."""
    every = Domain.of(items, items.capacity, torch.device("cpu"))
    allowed = restrict_supports(every, constraints)
    possible = ~allowed.outside[0]
    most = int(allowed.weigh(possible))
    if allowed.group is not None and allowed.most is not None:
        taken = allowed.group[possible & (allowed.group >= 0)].bincount(minlength=len(allowed.most))
        most -= int((taken - allowed.most).clamp(min=0).sum())
    return most - count_extra(items, constraints)


def scale_box(constraints: Constraints, scale: Tensor, outputs: int) -> CoefficientBox | None:
    """The bounds on coefficients in internal coordinates; ``scale (p,)`` is infinite for a column that is not used."""
    if constraints.lower is None and constraints.upper is None:
        return None
    unit = torch.where(scale.isinf(), 1.0, scale).unsqueeze(1)
    parts = []
    for given, default in ((constraints.lower, -np.inf), (constraints.upper, np.inf)):
        table = np.full((len(scale), 1), default) if given is None else np.asarray(given, dtype=np.float64)
        parts.append(torch.as_tensor(table, device=scale.device).expand(-1, outputs) * unit)
    return CoefficientBox(*parts)
