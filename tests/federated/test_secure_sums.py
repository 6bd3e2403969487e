"""What the server and other clients can see: uniform numbers, new in each run; only their sum is right."""

import numpy as np
import pytest
import scipy.stats

from psfit.federated import Identity, Job, LocalData, Roster, ServerSettings, ring, simulate
from psfit.federated.masks import Keyring, MaskError, Place, pair_masks
from psfit.federated.sharing import join_shares, split_secret
from psfit.federated.simulation import PipeTransport

JOB = Job("SparseLinearRegression", {"kappa": 2, "certify": False, "solver": {"max_iter": 4, "effort": "low"}})


class Recording(PipeTransport):
    """Keeps all updates that the server receives, and the run's name and members."""

    runs = None

    def __init__(self, members):
        self.updates = {}
        self.runs.append(self)
        super().__init__(members)

    def send(self, name, message):
        self.run = message.facts["run"]
        super().send(name, message)

    def receive(self, timeout):
        received = super().receive(timeout)
        if received is not None and received[1].kind == "update":
            name, reply = received
            label, (session, number) = reply.facts["label"], reply.facts["place"]
            words = ring.from_bytes(reply.parts["words"], label["count"])
            self.updates.setdefault(number, {"label": label, "place": Place(session, number)})[name] = words
        return received


@pytest.fixture(scope="module")
def transcripts():
    """Two secure runs and a plain one on the same data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 6))
    y = X[:, 1] - 2 * X[:, 4] + rng.normal(size=90)
    data = {name: LocalData(X[k::3], y[k::3]) for k, name in enumerate(("a", "b", "c"))}
    Recording.runs = []
    for secure in (True, True, False):
        simulate(JOB, data, ServerSettings(secure=secure), connect=Recording)
    return Recording.runs


def is_uniform(words):
    """Whether half bytes are uniform by a chi-squared test, at a level of one in a billion."""
    data = np.frombuffer(ring.to_bytes(words), dtype=np.uint8)
    counts = np.bincount(np.concatenate([data >> 4, data & 15]), minlength=16)
    return scipy.stats.chisquare(counts).pvalue > 1e-9


def test_masked_updates_differ_between_runs_and_each_alone_is_uniform(transcripts):
    first, second, plain = transcripts
    assert set(first.updates) == set(second.updates) == set(plain.updates)
    for name in ("a", "b", "c"):
        for number, update in first.updates.items():
            # No number is the same in both runs, nor the same as without masks.
            for other in (second, plain):
                assert (update[name] != other.updates[number][name]).any(axis=0).all()
        # Each message alone is uniform; without masks none is, but for maxima, which consist of random numbers.
        assert all(is_uniform(update[name]) for run in (first, second) for update in run.updates.values())
        open_ones = [update for update in plain.updates.values() if update["label"]["operation"] != "max"]
        assert len(open_ones) > 10
        assert not any(is_uniform(update[name]) for update in open_ones)
        # All together they are uniform, too, and the messages of two runs do not depend on each other.
        streams = [np.concatenate([u[name] for u in run.updates.values()], axis=1) for run in (first, second)]
        assert is_uniform(np.concatenate(streams, axis=1))
        assert is_uniform(ring.subtract(*streams))


def test_only_the_sum_over_all_clients_equals_the_plain_sum(transcripts):
    first, _, plain = transcripts
    member = first.members["a"]
    keyring = Keyring(member.identity, member.roster, first.run)
    compared = 0
    for number, update in first.updates.items():
        # Maxima add random numbers, which differ between runs.
        if update["label"]["operation"] == "max":
            continue
        names, apart = ("a", "b", "c"), plain.updates[number]
        total = ring.add(ring.add(update["a"], update["b"]), update["c"])
        expected = ring.add(ring.add(apart["a"], apart["b"]), apart["c"])
        np.testing.assert_array_equal(keyring.reveal(update["place"], names, total), expected)
        for left in names:
            rest = [name for name in names if name != left]
            some = keyring.reveal(update["place"], rest, ring.add(update[rest[0]], update[rest[1]]))
            assert (some != ring.add(apart[rest[0]], apart[rest[1]])).any(axis=0).all()
        compared += 1
    assert compared > 10


def test_the_server_with_all_keys_of_one_client_learns_no_number_of_another(transcripts):
    """Client c colludes: it has the shared secret, and would remove its own masks with a's; those with b remain."""
    first, _, plain = transcripts
    member = first.members["c"]
    keyring = Keyring(member.identity, member.roster, first.run)
    left = []
    for number, update in first.updates.items():
        seen = keyring.reveal(update["place"], ("a",), update["a"])
        # Even the sum of a's and c's messages with c's own numbers removed leaves the masks between a and b.
        pair = keyring.reveal(update["place"], ("a", "c"), ring.add(update["a"], update["c"]))
        pair = ring.subtract(pair, plain.updates[number]["c"])
        for known in (seen, pair):
            assert (known != plain.updates[number]["a"]).any(axis=0).all()
            left.append(known)
    assert is_uniform(np.concatenate(left, axis=1))


def make_keyrings(*names):
    identities = {name: Identity.create(name) for name in names}
    roster = Roster.create(one.public for one in identities.values())
    return {name: Keyring(one, roster, "run") for name, one in identities.items()}


def exchange_keys(keyrings, place):
    made = {name: keyring.prepare(place, list(keyrings)) for name, keyring in keyrings.items()}
    for name, keyring in keyrings.items():
        keyring.receive(place, {other: boxes[name] for other, (_, boxes) in made.items() if other != name})
    return {name: public for name, (public, _) in made.items()}


def test_shares_of_a_missing_client_complete_a_sum_and_are_given_only_once():
    keyrings, place = make_keyrings("a", "b", "c", "d"), Place(1, 0)
    publics = exchange_keys(keyrings, place)
    values = {name: np.array([1.5 * k, -(2.0**-60)]) for k, name in enumerate("abcd")}
    here = ["a", "b", "c"]
    total = ring.zeros(2)
    for name in here:
        total = ring.add(total, keyrings[name].hide(place, list("abcd"), ring.encode(values[name])))
    given = {name: keyrings[name].give_shares(place, ["d"], 3) for name in here}
    private = join_shares({k: given[name]["d"] for k, name in enumerate(here, start=1)}, 3)
    total = ring.add(total, pair_masks("run", place, "d", private, {name: publics[name] for name in here}, 2))
    found = ring.decode(keyrings["a"].reveal(place, here, total))
    np.testing.assert_array_equal(found, sum(values[name] for name in here))
    with pytest.raises(MaskError, match="given already"):
        keyrings["a"].give_shares(place, ["d"], 3)
    # Requests one after the other count together: without c and d the sum would have two clients.
    with pytest.raises(MaskError, match="without c, d would have fewer than 3"):
        keyrings["a"].give_shares(place, ["c"], 3)
    with pytest.raises(MaskError, match="have been used"):
        keyrings["a"].hide(place, list("abcd"), ring.zeros(2))
    # The key of this message says nothing about the next one.
    exchange_keys(keyrings, Place(1, 1))
    assert private != keyrings["d"]._keys[Place(1, 1)].private
    # Nobody gives shares for a sum to which it has not sent its own numbers.
    with pytest.raises(MaskError, match="gone or given already"):
        keyrings["a"].give_shares(Place(1, 1), ["d"], 3)


def test_keys_that_the_pinned_identity_has_not_sealed_are_refused():
    keyrings, place = make_keyrings("a", "b", "c"), Place(1, 0)
    strangers = make_keyrings("a", "b", "c")
    keyrings["a"].prepare(place, ["a", "b", "c"])
    _, boxes = strangers["b"].prepare(place, ["a", "b", "c"])
    with pytest.raises(MaskError, match="not sealed with the key that the roster pins"):
        keyrings["a"].receive(place, {"b": boxes["a"]})


def test_enough_shares_give_the_secret_and_fewer_do_not():
    secret = bytes(range(32))
    shares = split_secret(secret, 5, 3)
    assert join_shares({1: shares[0], 3: shares[2], 5: shares[4]}, 3) == secret
    with pytest.raises(ValueError, match="too few"):
        join_shares({1: shares[0], 3: shares[2]}, 3)
    # Two shares fit every secret: a polynomial of degree two through them and any constant exists.
    again = split_secret(bytes(32), 5, 3)
    assert shares[0] != again[0]


def test_fixed_point_sums_are_exact_and_keep_infinities_and_nan():
    from fractions import Fraction

    rng = np.random.default_rng(1)
    parts = rng.normal(size=(7, 500)) * 10.0 ** rng.integers(-30, 32, size=(7, 500))
    total = ring.zeros(500)
    for part in parts:
        total = ring.add(total, ring.encode(part))
    exact = [sum(map(Fraction, column)) for column in parts.T.tolist()]
    for found, value in zip(ring.decode(total).tolist(), exact, strict=True):
        assert abs(Fraction(found) - value) <= 7 * Fraction(2) ** -113 + abs(value) * Fraction(2) ** -51
    special = ring.encode(np.array([np.inf, np.nan, -np.inf, 1.0]))
    mixed = ring.decode(ring.add(special, ring.encode(np.full(4, -1e33))))
    np.testing.assert_array_equal(mixed, [np.inf, np.nan, np.nan, 1.0 - 1e33])
    with pytest.raises(ring.RangeError, match="units"):
        ring.encode(np.array([1e34]))
