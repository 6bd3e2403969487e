"""Who takes part: identities of clients, the roster that pins them, and the secret that the server does not have."""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from psfit.federated.requirements import import_cryptography

KEY_BYTES = 32


class IdentityError(ValueError):
    """An identity or a roster cannot be used."""


@dataclass(frozen=True)
class Identity:
    """A client's name and its private X25519 key; the public key is in the roster of all clients."""

    name: str
    private: bytes

    @classmethod
    def create(cls, name: str) -> "Identity":
        """A new identity with a random key."""
        return cls(check_name(name), make_private_key())

    @property
    def public(self) -> bytes:
        """The public key."""
        return public_key(self.private)

    def save(self, path: Path) -> None:
        """Write the identity to a new file that only its owner can read."""
        _write_secret(path, {"name": self.name, "private": self.private.hex()})

    @classmethod
    def load(cls, path: Path) -> "Identity":
        """Read an identity."""
        facts = _read(path, "identity", "name", "private")
        return cls(check_name(facts["name"]), _read_key(facts["private"], path))


@dataclass(frozen=True)
class Roster:
    """All clients of a federation, in order, with their public keys; and the secret that clients share.

    The server has the names alone. With the shared secret clients hide even the sums from it.
    """

    keys: dict[str, bytes]
    secret: bytes

    @classmethod
    def create(cls, keys: dict[str, bytes]) -> "Roster":
        """A roster of these clients with a new secret."""
        if len(set(keys.values())) != len(keys):
            raise IdentityError("two clients of the roster have the same key; each needs an identity of its own")
        return cls({check_name(name): key for name, key in keys.items()}, secrets.token_bytes(KEY_BYTES))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients, in the order of their ranks."""
        return tuple(self.keys)

    def require(self, identity: Identity) -> None:
        """Refuse an identity that is not the one in the roster."""
        if self.keys.get(identity.name) != identity.public:
            raise IdentityError(f"the roster has no client {identity.name!r} with this key; exchange the rosters again")

    def save(self, path: Path) -> None:
        """Write the roster to a new file that only its owner can read."""
        keys = {name: key.hex() for name, key in self.keys.items()}
        _write_secret(path, {"clients": keys, "secret": self.secret.hex()})

    @classmethod
    def load(cls, path: Path) -> "Roster":
        """Read a roster."""
        facts = _read(path, "roster", "clients", "secret")
        keys = {check_name(name): _read_key(key, path) for name, key in facts["clients"].items()}
        return cls(keys, _read_key(facts["secret"], path))


def check_name(name: object) -> str:
    """The name of a client; refuses names that logs and addresses cannot hold."""
    if isinstance(name, str) and 0 < len(name) <= 64 and all(sign.isalnum() or sign in "-_." for sign in name):
        return name
    raise IdentityError(f"name={name!r} must have 1 to 64 letters, digits, dots, dashes or underscores")


def make_private_key() -> bytes:
    """A new private X25519 key."""
    return bytes(import_cryptography().X25519PrivateKey.generate().private_bytes_raw())


def public_key(private: bytes) -> bytes:
    """The public key of a private one."""
    return bytes(import_cryptography().X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def agree_on_key(private: bytes, public: bytes, purpose: str) -> bytes:
    """The key that two parties derive from each other's public keys (X25519, then HKDF with SHA-256)."""
    tools = import_cryptography()
    own = tools.X25519PrivateKey.from_private_bytes(private)
    return derive_key(own.exchange(tools.X25519PublicKey.from_public_bytes(public)), purpose)


def derive_key(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose from a secret (HKDF with SHA-256)."""
    tools = import_cryptography()
    hkdf = tools.HKDF(algorithm=tools.SHA256(), length=KEY_BYTES, salt=b"psfit federated", info=purpose.encode())
    return bytes(hkdf.derive(secret))


def _write_secret(path: Path, facts: dict[str, object]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(facts, file, indent=1)


def _read(path: Path, what: str, *names: str) -> dict:
    try:
        facts = json.loads(path.read_text())
        return {name: facts[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IdentityError(f"{path} is no file with {what}: {type(error).__name__}") from None


def _read_key(text: object, path: Path) -> bytes:
    try:
        key = bytes.fromhex(str(text))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise IdentityError(f"{path} holds a key that is not {KEY_BYTES} bytes in hexadecimal digits")
    return key


def write_public(identity: Identity, path: Path) -> None:
    """Write what others may know of an identity."""
    path.write_text(json.dumps({"name": identity.name, "public": identity.public.hex()}))


def read_public(path: Path) -> tuple[str, bytes]:
    """The name and the public key in a file of `write_public`."""
    facts = _read(path, "public key", "name", "public")
    return check_name(facts["name"]), _read_key(facts["public"], path)
