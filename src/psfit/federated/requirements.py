"""The libraries of the extra `psfit-toolbox[flower]`, imported when they are needed."""

from functools import cache
from types import SimpleNamespace
from typing import Any

REMEDY = "install them with: pip install 'psfit-toolbox[flower]'"


@cache
def import_cryptography() -> Any:
    """The parts of `cryptography` that secure sums use."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise ImportError(f"secure sums need the libraries of psfit.federated; {REMEDY}") from None
    return SimpleNamespace(
        InvalidTag=InvalidTag,
        X25519PrivateKey=X25519PrivateKey,
        X25519PublicKey=X25519PublicKey,
        Cipher=Cipher,
        ChaCha20=ChaCha20,
        ChaCha20Poly1305=ChaCha20Poly1305,
        SHA256=SHA256,
        HKDF=HKDF,
    )


def require_flower() -> None:
    """Refuse to go on without Flower."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise ImportError(f"federations over a network need Flower; {REMEDY}") from None
