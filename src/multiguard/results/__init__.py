"""The files of certificates, curves and attacks."""

from multiguard.results.attack_files import AttackFolder, read_attacks, write_attacks
from multiguard.results.certificate_files import CertificatesFolder, read_certificates, write_certificates
from multiguard.results.curve_files import read_curves, write_curves

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
