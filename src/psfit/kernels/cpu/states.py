"""Supports in a quadratic form, with what a search needs to know of all variables; as plain loops.

The objective is ``sum_o x_o'H x_o / 2 - q_o'x_o`` over the outputs o, on a support S of places. With ``K = H_SS^-1`` a
state holds ``T = H[:, S] K``, the gradient ``d``, and the Schur complement ``left_l = H_ll - H_lS K H_Sl`` of every
variable. All of them follow when variables join or leave by updates of low rank, so an exchange reads and writes `T`
once and calls no library. The updates of `d` are those of one more column of `T`, and those of `x` of one of `K`. So
`inner` holds ``[x, K]``, and `outer` holds ``[d, T]``.

Rows of `T` of variables inside the support are unit vectors and are not kept. They are set when a variable leaves.
"""

from typing import NamedTuple

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, insert_loops


class Rules(NamedTuple):
    """The limits of a search, which do not change with its state.

    The variables ``fixed (n,)`` stay in or out; a variable l of the group ``group[l] >= 0`` may join only while fewer
    than ``most[group]`` of that group are inside; a variable with a Schur complement below the share `accuracy` of its
    own curvature depends on the support, up to rounding.
    """

    fixed: np.ndarray
    group: np.ndarray
    most: np.ndarray
    accuracy: float


class State(NamedTuple):
    """A support with room for W variables, and what the module's text describes, for c outputs.

    The shapes are ``places (W,)``, ``inside (n,)``, ``taken (groups,)``, ``inner (W, c + W)``, ``outer (n, c + W)`` and
    ``left (n,)``.
    """

    places: np.ndarray
    inside: np.ndarray
    taken: np.ndarray
    inner: np.ndarray
    outer: np.ndarray
    left: np.ndarray

    @property
    def x(self) -> np.ndarray:
        """The minimiser on the support (W, c)."""
        return self.inner[:, : -len(self.inner)]

    @property
    def K(self) -> np.ndarray:
        """The inverse of the matrix on the support (W, W)."""
        return self.inner[:, -len(self.inner) :]

    @property
    def d(self) -> np.ndarray:
        """The gradient (n, c)."""
        return self.outer[:, : -len(self.inner)]

    @property
    def T(self) -> np.ndarray:
        """The table of all variables and the support (n, W)."""
        return self.outer[:, -len(self.inner) :]


def make_rules(
    fixed: np.ndarray, group: np.ndarray, most: np.ndarray, variables: int, width: int, accuracy: float
) -> Rules:
    """The rules of items with one variable each, and of intercepts behind them, which stay in."""
    others = variables - len(fixed)
    stay, alone = np.ones(others, bool), np.full(others, -1)
    return Rules(np.concatenate([fixed, stay]), np.concatenate([group, alone]), most, accuracy)


def make_state(H: np.ndarray, Q: np.ndarray, width: int, groups: int) -> State:
    """The state of an empty support with room for `width` variables."""
    (n, c), integer = Q.shape, np.int64
    state = State(
        np.zeros(width, integer),
        np.zeros(n, bool),
        np.zeros(groups, integer),
        np.zeros((width, c + width)),
        np.zeros((n, c + width)),
        H.diagonal().copy(),
    )
    np.negative(Q, out=state.outer[:, :c])
    return state


def value_of(Q: np.ndarray, state: State, size: int) -> float:
    """The objective at the minimiser on the support."""
    return -0.5 * float((Q[state.places[:size]] * state.x[:size]).sum())


@insert_loops
def clear_state(H, Q, state):  # type: ignore[no-untyped-def]
    """Empty the support."""
    for k in range(len(state.left)):
        state.inside[k] = False
        state.left[k] = H[k, k]
        for o in range(Q.shape[1]):
            state.outer[k, o] = -Q[k, o]
    for g in range(len(state.taken)):
        state.taken[g] = 0


@insert_loops
def copy_state(source, target, size):  # type: ignore[no-untyped-def]
    """Copy a state with `size` variables into the arrays of another one."""
    c = source.inner.shape[1] - source.inner.shape[0]
    for a in range(size):
        target.places[a] = source.places[a]
        for b in range(c + size):
            target.inner[a, b] = source.inner[a, b]
    for k in range(len(source.left)):
        target.inside[k] = source.inside[k]
        target.left[k] = source.left[k]
        for b in range(c + size):
            target.outer[k, b] = source.outer[k, b]
    for g in range(len(source.taken)):
        target.taken[g] = source.taken[g]


@insert_loops
def _free(state, rules, j, end):  # type: ignore[no-untyped-def]
    """Set what is known of the variable in place `j`, which was inside and will be outside."""
    gone = state.places[j]
    state.inside[gone] = False
    if rules.group[gone] >= 0:
        state.taken[rules.group[gone]] -= 1
    for b in range(end):
        state.outer[gone, b] = 0.0
    state.outer[gone, state.inner.shape[1] - state.inner.shape[0] + j] = 1.0
    state.left[gone] = 0.0


@compile_inner_sums
def change_state(H, state, rules, room, j, i, size):  # type: ignore[no-untyped-def]
    """Take out the variable in place `j` and put in variable `i`, in one pass over `outer`; -1 stands for none.

    A newcomer gets the place that is free, else one after the last. Without a newcomer the last variable gets the place
    that is free. One that depends on those inside gets as much curvature as rounding may have, so that all numbers stay
    finite. The rows of ``room (3, c + W)`` are the shares of the variable that leaves, the row of `outer` of the
    newcomer after that, and its row of `H`.
    """
    places, inside, taken, inner, outer, left = state
    n, c, leaves, joins = len(left), inner.shape[1] - inner.shape[0], j >= 0, i >= 0
    end, last, place = c + size, size - 1, j if leaves else size
    own, t, s = 1.0, 0.0, 1.0
    if leaves:
        own = inner[j, c + j]
    if joins:
        if leaves:
            t = outer[i, c + j]
        s = max(left[i] + t * t / own, rules.accuracy * H[i, i])
    for b in range(end):
        room[0, b] = inner[j, b] / own if leaves else 0.0
        room[1, b] = outer[i, b] - room[0, b] * t if joins else 0.0
        room[2, b] = H[i, places[b - c]] if joins and b >= c else 0.0
    for a in range(size):
        f, u = room[0, c + a] * own, room[1, c + a] / s
        for b in range(end):
            inner[a, b] += u * room[1, b] - f * room[0, b]
    if leaves:
        _free(state, rules, j, end)
    if joins:
        places[place], inside[i] = i, True
        if rules.group[i] >= 0:
            taken[rules.group[i]] += 1
        for b in range(end):
            inner[place, b] = -room[1, b] / s
        for a in range(size):
            inner[a, c + place] = -room[1, c + a] / s
        inner[place, c + place] = 1 / s
    else:
        places[place] = places[last]
        for b in range(end):
            inner[place, b] = inner[last, b]
        for a in range(size):
            inner[a, c + place] = inner[a, c + last]
    for k in range(n):
        if inside[k]:
            continue
        v = outer[k, c + place] if leaves else 0.0
        r = 0.0
        for b in range(end):
            r += room[2, b] * outer[k, b]
        r = H[i, k] - r + t * v / own if joins else 0.0
        g = r / s
        for b in range(end):
            outer[k, b] -= room[0, b] * v + room[1, b] * g
        outer[k, c + place] = g if joins else outer[k, c + last]
        left[k] += v * v / own - r * g
    return size + joins - leaves
