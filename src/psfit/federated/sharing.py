"""Shamir's secret sharing: any `threshold` of the shares give the secret, fewer say nothing about it."""

import secrets
from collections.abc import Mapping

# The smallest prime above 2^256, so that every secret of 32 bytes is a number of the field.
PRIME = 2**256 + 297
SHARE_BYTES = 33
SECRET_BYTES = 32


def split_secret(secret: bytes, holders: int, threshold: int) -> list[bytes]:
    """The shares of holders 1, 2, ...: values of a random polynomial whose constant term is the secret."""
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= holders:
        raise ValueError(f"a secret of {SECRET_BYTES} bytes and a threshold between 1 and {holders} are needed")
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_evaluate(coefficients, point).to_bytes(SHARE_BYTES) for point in range(1, holders + 1)]


def join_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, from the shares of at least `threshold` holders, by their numbers."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares are too few: {threshold} are needed")
    points = sorted(shares)[:threshold]
    total = 0
    for own in points:
        weight = 1
        for other in points:
            if other != own:
                weight = weight * other * pow(other - own, -1, PRIME) % PRIME
        total += weight * int.from_bytes(shares[own])
    secret = total % PRIME
    if secret >= 2**256:
        raise ValueError("the shares do not belong together")
    return secret.to_bytes(SECRET_BYTES)


def _evaluate(coefficients: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value
