"""signature.json beside certificates: an ed25519 signature, by which a reader knows who vouches for them.

It signs the sha256 of certificates.parquet. That file holds the sha256 of the votes' manifest, which holds those of all
votes, so the signature covers everything that the certificates are made from.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiguard.errors import DataError, InvalidInputError
from multiguard.io.files import mentions, read_regular, remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.records import convert, decode_checked, encode_checked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE_NAME = "signature.json"
_FORMAT: dict[str, Any] = {"format": "multiguard-signature", "version": 1}
_MOST = 1 << 16  # bytes of a key or a signature
_MAKE_KEY = "`openssl genpkey -algorithm ed25519 -out key.pem` makes one"


@dataclass(frozen=True)
class Signature:
    """A signature of certificates."""

    certificates_sha256: str  # of certificates.parquet
    public_key: str  # 32 bytes in hexadecimal
    signature: str  # 64 bytes in hexadecimal

    def holds(self) -> bool:
        """Whether the owner of the key signed this checksum."""
        _require_cryptography()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key))
            key.verify(bytes.fromhex(self.signature), _message(self.certificates_sha256))
        except (InvalidSignature, ValueError):
            return False
        return True


def sign_certificates(folder: Path, key: Path, certificates_hash: str) -> Signature:
    """Sign the certificates of a folder with a private key in PEM, and write signature.json; an older one goes.

    The hash is that of the certificates.parquet that was verified; one that came in its place has no signature.
    """
    path = folder / SIGNATURE_NAME
    if os.path.lexists(path) and not mentions(path, _FORMAT["format"]):
        raise InvalidInputError(f"{path} is not a signature of multiguard, so it is not replaced; move it")
    secret = _private_key(key)
    public = secret.public_key().public_bytes_raw().hex()
    signature = Signature(certificates_hash, public, secret.sign(_message(certificates_hash)).hex())
    content = encode_checked(signature, **_FORMAT)
    with folder_lock(folder):
        remove_partial_files(folder, lambda name: name == SIGNATURE_NAME)
        write_atomically(path, lambda file: file.write(content))
    return signature


def read_signature(folder: Path) -> Signature | None:
    """The signature beside the certificates, not yet checked; None if there is none, `DataError` if it is damaged."""
    path = folder / SIGNATURE_NAME
    try:
        return convert(decode_checked(read_regular(path, _MOST), **_FORMAT), Signature)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be used: {error}; sign the certificates again") from error


def read_public_key(path: Path) -> str:
    """The ed25519 public key of a PEM file, in hexadecimal; anything else raises `InvalidInputError`."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(read_regular(path, _MOST))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path}: not a public key in PEM ({_cause(error)})") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInputError(f"{path}: another kind of key; expected ed25519")
    return key.public_bytes_raw().hex()


def _private_key(path: Path) -> Ed25519PrivateKey:
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(read_regular(path, _MOST), password=None)
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: not a private key in PEM without password ({_cause(error)}); {_MAKE_KEY}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInputError(f"{path}: another kind of key; expected ed25519: {_MAKE_KEY}")
    return key


def _message(digest: str) -> bytes:
    """What is signed: it cannot be taken for a signature of anything else."""
    return f"multiguard certificates, version 1, sha256 {digest}".encode()


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else str(error).split(".")[0]) or type(error).__name__


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise InvalidInputError("signatures need cryptography: pip install 'multiguard[sign]'") from error
