"""The files of certificates, curves, attacks and choices."""

from multiguard.results.attack_files import AttackFolder, read_attacks, write_attacks
from multiguard.results.certificate_files import read_certificates, write_certificates
from multiguard.results.curve_files import read_curves, write_curves
from multiguard.results.run_results import Results
from multiguard.results.tuned_file import read_tuned, write_tuned

__all__ = [
    "AttackFolder",
    "Results",
    "read_attacks",
    "read_certificates",
    "read_curves",
    "read_tuned",
    "write_attacks",
    "write_certificates",
    "write_curves",
    "write_tuned",
]
