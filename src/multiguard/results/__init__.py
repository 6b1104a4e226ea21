"""The files of certificates, curves and attacks."""

from multiguard.results.attack_files import AttackFolder, read_attacks, write_attacks
from multiguard.results.certificate_files import read_certificates, write_certificates
from multiguard.results.curve_files import read_curves, write_curves
from multiguard.results.run_results import Results

__all__ = [
    "AttackFolder",
    "Results",
    "read_attacks",
    "read_certificates",
    "read_curves",
    "write_attacks",
    "write_certificates",
    "write_curves",
]
