"""The files of certificates, curves and attacks."""

from multiguard.results.attack_folder import AttackFolder, read_attacks, write_attacks
from multiguard.results.certificates_folder import CertificatesFolder, read_certificates, write_certificates
from multiguard.results.tables import read_curves, write_curves

__all__ = [
    "AttackFolder",
    "CertificatesFolder",
    "read_attacks",
    "read_certificates",
    "read_curves",
    "write_attacks",
    "write_certificates",
    "write_curves",
]
