"""Proofs: a lower bound with every answer, and the search that closes the gap that is left."""

from psfit.certificate.branch import Standing
from psfit.certificate.certify import Certificate, Certifier
from psfit.certificate.exact import Proof, prove

__all__ = ["Certificate", "Certifier", "Proof", "Standing", "prove"]
