"""Constraints in words."""

import numpy as np
import pytest

from psfit.problem.constraint_words import describe_constraints, describe_count
from psfit.problem.constraints import Constraints

NAMES = ("a", "b", "c", "d")
INF = np.inf


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(), ()),
        (Constraints(include=(0, 2)), ("always in (not counted by kappa): a, c",)),
        (
            Constraints(include=(1,), count_included=True, exclude=(3,)),
            ("always in (counted by kappa): b", "never in: d"),
        ),
        (Constraints(lower=np.zeros((4, 1))), ("all coefficients at least 0",)),
        (Constraints(lower=np.full((4, 1), -1.0), upper=np.full((4, 1), 2.5)), ("all coefficients from -1 to 2.5",)),
        (
            Constraints(lower=np.array([[0.0], [-INF], [0.0], [0.0]]), upper=np.array([[INF], [INF], [0.0], [1.0]])),
            ("coefficients at least 0: a; equal to 0: c; from 0 to 1: d",),
        ),
        (
            Constraints(upper=np.array([[1.0, 2.0], [INF, 2.0], [INF, INF], [INF, INF]])),
            ("coefficients at most 1: a [output 0]; at most 2: a [output 1], b [output 1]",),
        ),
        (Constraints(group=np.array([0, 1, 1, 2])), ("in or out as a whole: pair (2 features)",)),
        (
            Constraints(kind=np.array([0, -1, 0, 1]), at_most=np.array([1, 2])),
            ("at most 1 of lags (a, c); at most 2 of rest (d)",),
        ),
        (Constraints(parents=((3, (0, 1)),)), ("only with all of their factors (strong heredity): d",)),
        (Constraints(parents=((3, (0,)),), heredity="weak"), ("only with one of their factors (weak heredity): d",)),
    ],
)
def test_words_have_names(constraints, words):
    groups, kinds = ("a", "pair", "d"), ("lags", "rest")
    assert describe_constraints(constraints, NAMES, groups, kinds) == words


def test_long_lists_are_cut():
    (words,) = describe_constraints(Constraints(exclude=tuple(range(40))))
    assert words == "never in: " + ", ".join(map(str, range(12))) + " and 28 more"


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(exclude=(1,)), ""),
        (Constraints(include=(1,)), "nonzero coefficients besides those always in"),
        (Constraints(include=(1,), count_included=True), ""),
        (Constraints(group=np.array([0, 0])), "groups"),
        (Constraints(group=np.array([0, 0]), counts_features=True), "features in groups"),
        (Constraints(group=np.array([0, 0, 1]), include=(2,)), "groups besides those always in"),
    ],
)
def test_what_kappa_counts(constraints, words):
    assert describe_count(constraints) == words
