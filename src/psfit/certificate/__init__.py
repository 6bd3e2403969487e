"""Proofs: a lower bound with every answer, and the search that closes the gap that is left."""

from psfit.certificate.branch import Standing
from psfit.certificate.certify import Certificate, Certifier
from psfit.certificate.exact import prove
from psfit.certificate.tree_record import Proof, Request

__all__ = ["Certificate", "Certifier", "Proof", "Request", "Standing", "prove"]
