"""Who takes part: identities of clients, the roster that pins them, and the secret that the server does not have."""

import json
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from psfit.federated.requirements import import_cryptography

KEY_BYTES = 32


class IdentityError(ValueError):
    """An identity or a roster cannot be used."""


@dataclass(frozen=True)
class Identity:
    """A client's name and its private X25519 key; the public key is in the roster of all clients.

    `may_leave`: if this client stays away, the others may go on without it. They can then compute its own numbers, as
    differences of sums with and without it.
    """

    name: str
    private: bytes
    may_leave: bool = False

    @classmethod
    def create(cls, name: str, may_leave: bool = False) -> "Identity":
        """A new identity with a random key."""
        return cls(check_name(name), make_private_key(), may_leave)

    @property
    def public(self) -> "Public":
        """What others may know."""
        return Public(self.name, public_key(self.private), self.may_leave)

    def save(self, path: Path) -> None:
        """Write the identity to a new file that only its owner can read."""
        _write_secret(path, {"name": self.name, "private": self.private.hex(), "may_leave": self.may_leave})

    @classmethod
    def load(cls, path: Path) -> "Identity":
        """Read an identity."""
        facts = _read_secret(path, "identity", "name", "private", "may_leave")
        return cls(check_name(facts["name"]), _read_key(facts["private"], path), facts["may_leave"] is True)


@dataclass(frozen=True)
class Roster:
    """All clients of a federation, in order, with their public keys; and the secret that clients share.

    The server has the names alone. With the shared secret clients hide even the sums from it. `may_leave` names the
    clients without which the others may go on.
    """

    keys: dict[str, bytes]
    secret: bytes
    may_leave: frozenset[str] = frozenset()

    @classmethod
    def create(cls, publics: Iterable["Public"]) -> "Roster":
        """A roster of these clients with a new secret."""
        publics = list(publics)
        names, keys = ({getattr(one, field) for one in publics} for field in ("name", "key"))
        if len(names) < len(publics) or len(keys) < len(publics):
            raise IdentityError("two clients of the roster have the same name or key; each needs its own identity")
        may_leave = frozenset(one.name for one in publics if one.may_leave)
        return cls({one.name: one.key for one in publics}, secrets.token_bytes(KEY_BYTES), may_leave)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients, in the order of their ranks."""
        return tuple(self.keys)

    def require(self, identity: Identity) -> None:
        """Refuse an identity that is not the one in the roster."""
        if self.keys.get(identity.name) != identity.public.key:
            raise IdentityError(f"the roster has no client {identity.name!r} with this key; exchange the rosters again")
        if identity.name in self.may_leave and not identity.may_leave:
            raise IdentityError(f"the roster says that {identity.name!r} may be left out, but its identity does not")

    def object_to(self, names: Sequence[str]) -> str | None:
        """Why a run over the clients `names` is not one of this federation; None if it is."""
        if list(names) != [name for name in self.names if name in names]:
            return "the clients of the run are not those of this client's roster"
        forced = [name for name in self.names if name not in names and name not in self.may_leave]
        if forced:
            return f"the run leaves out {', '.join(forced)}, which the roster does not allow"
        return None

    def save(self, path: Path) -> None:
        """Write the roster to a new file that only its owner can read."""
        keys = {name: key.hex() for name, key in self.keys.items()}
        _write_secret(path, {"clients": keys, "secret": self.secret.hex(), "may_leave": sorted(self.may_leave)})

    @classmethod
    def load(cls, path: Path) -> "Roster":
        """Read a roster."""
        facts = _read_secret(path, "roster", "clients", "secret", "may_leave")
        keys = {check_name(name): _read_key(key, path) for name, key in facts["clients"].items()}
        return cls(keys, _read_key(facts["secret"], path), frozenset(facts["may_leave"]))


@dataclass(frozen=True)
class Public:
    """What others know of a client: its name, its public key, and whether they may go on without it."""

    name: str
    key: bytes
    may_leave: bool = False

    def save(self, path: Path) -> None:
        """Write the file that the others get."""
        path.write_text(json.dumps({"name": self.name, "public": self.key.hex(), "may_leave": self.may_leave}))

    @classmethod
    def load(cls, path: Path) -> "Public":
        """Read a file of `save`."""
        facts = _read(path, "public key", "name", "public", "may_leave")
        return cls(check_name(facts["name"]), _read_key(facts["public"], path), facts["may_leave"] is True)


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


def _read_secret(path: Path, what: str, *names: str) -> dict:
    """Read a file that its owner alone may read."""
    if os.name == "posix" and path.exists() and path.stat().st_mode & 0o077:
        raise IdentityError(f"{path} holds a secret, but others can read it; run: chmod 600 {path}")
    return _read(path, what, *names)


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
