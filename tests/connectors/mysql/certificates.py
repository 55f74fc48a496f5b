"""Certificates for a test, signed by an authority of its own."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        builder = _builder(name, key.public_key()).issuer_name(name)
        basic = x509.BasicConstraints(ca=True, path_length=None)
        certificate = builder.add_extension(basic, critical=True).sign(key, hashes.SHA256())
        return cls(key, certificate)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, folder: Path) -> Path:
        path = folder / "authority.pem"
        path.write_text(self.pem)
        return path

    def sign(self, host: str, folder: Path) -> tuple[Path, Path]:
        """The files of a certificate for a host, and of its key, which anybody may read."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        builder = _builder(name, key.public_key()).issuer_name(self.certificate.subject)
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        signed = builder.add_extension(names, critical=False).sign(self.key, hashes.SHA256())
        folder.mkdir()
        paths = (folder / "certificate.pem", folder / "key.pem")
        paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.TraditionalOpenSSL
        encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
        paths[1].write_bytes(key.private_bytes(encoding, form, no_password))
        return paths


def _builder(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    present = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(present - dt.timedelta(days=1))
        .not_valid_after(present + dt.timedelta(days=9))
    )
