"""The answers of today are those that were written down, up to rounding.

They are no proof of being right, which other tests look after: they show that a change which should change no answer
changes none. `answers.write` writes them anew.
"""

import json

import pytest
from answers.place import Place
from answers.problems import PROBLEMS, answer
from answers.write import FILE
from launch import HERE, command, run

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
KNOWN = json.loads(FILE.read_text())
# The answer is refitted in float64, so that it hardly depends on how its support was found.
OBJECTIVE = 1e-9
# An objective that is nearly nothing may be the difference of sums of some 1e3, whose errors are shares of 1e-16.
NOTHING = 1e-13
# A bound depends on the point that it is computed at, and that on the iteration, in its own precision.
BOUND, SINGLE_BOUND = 1e-6, 1e-5

ON_RANKS = {
    2: ["squared, 2x3", "squared, p > n, AR(1) 0.9, 1x2", "softmax, 4x1, weights", "path, squared, features, 4x1"],
    4: ["squared, 4x1", "squared hinge, 2x2, weights", "choice, squared, gammas, weights, 4x1"],
}
ON_A_GPU = [
    "squared, two targets",
    "squared, p > n",
    "squared, exact",
    "squared, SciPy sparse",
    "squared, streamed",
    "huber, weights, 2x3",
    "logistic, 4x1, standardize",
    "softmax, features",
    "poisson",
    "solve, squared, two limits",
    "path, squared, two targets, weights",
    "choice, logistic, gammas",
]


def same_objectives(found, known, share=OBJECTIVE):
    assert found["objectives"] == pytest.approx(known["objectives"], rel=share, abs=NOTHING)


def same_choice(found, known, share=OBJECTIVE):
    for name in ("supports", "kappa", "gamma"):
        assert found.get(name) == known.get(name)
    if "scores" in known:
        assert found["scores"] == pytest.approx(known["scores"], rel=share)


def bounds_hold(found, known, share):
    """No bound is above its objective, but for rounding, and each is about as good as it was."""
    pairs = zip(found["objectives"], found["lower_bounds"], known["lower_bounds"], strict=True)
    for objective, bound, before in pairs:
        assert (bound is None) == (before is None)
        if bound is not None:
            assert bound <= objective + OBJECTIVE * abs(objective)
            assert bound == pytest.approx(before, rel=0, abs=share * abs(objective) + NOTHING)


def test_every_problem_has_an_answer():
    assert sorted(PROBLEMS) == list(KNOWN)


@pytest.mark.parametrize("name", PROBLEMS)
def test_answers_stay(name, tmp_path):
    known, found = KNOWN[name], answer(name, Place(tmp_path))
    assert sorted(found) == sorted(known)
    same_choice(found, known)
    if "objectives" in known:
        same_objectives(found, known)
        bounds_hold(found, known, SINGLE_BOUND if "float32" in name else BOUND)
        assert found["status"] == known["status"]
    if "iterations" in known:
        # Rounding, which other processors do otherwise, can delay the last iterations.
        assert found["iterations"] == pytest.approx(known["iterations"], rel=0.2, abs=2)


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.long), 4])
def test_ranks_give_the_same_answers(ranks, tmp_path):
    names, output = ON_RANKS[ranks], tmp_path / "found.json"
    done = run(command("torch", ranks, str(HERE.parent / "answers" / "on_ranks.py"), str(output), *names))
    assert done.returncode == 0, done.stderr
    answers = json.loads(output.read_text())
    assert list(answers) == names
    for name, found in answers.items():
        same_choice(found, KNOWN[name])
        same_objectives(found, KNOWN[name])
        bounds_hold(found, KNOWN[name], BOUND)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_gpu_gives_the_same_objectives(name, tmp_path):
    found = answer(name, Place(tmp_path, device="cuda"))
    same_objectives(found, KNOWN[name], 1e-6)
    same_choice(found, KNOWN[name], 1e-6)
