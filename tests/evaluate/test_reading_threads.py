"""Reading votes and certificates leaves no thread behind that may end the process with an abort."""

import subprocess
import sys

import pytest
from tests.evaluate.votes_cases import random_votes

from multiguard.evaluate import CertifyConfig, certify_votes
from multiguard.votes import read_votes

READ = """
import os, sys
import pyarrow as pa, pyarrow.parquet
from multiguard.evaluate import read_certificates
from multiguard.votes import read_votes
pa.array(range(1000))
before = len(os.listdir("/proc/self/task"))
assert len(list(read_votes(sys.argv[1]))) == 2 == len(read_certificates(sys.argv[2]).certificates.ids)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_no_thread(tmp_path):
    """A thread of pyarrow that lets go of Python's bytes while Python ends would abort a command that has succeeded."""
    random_votes(tmp_path / "votes", images=2, draws=20, seed=0)
    certify_votes(CertifyConfig(k=3, k_prime=2), read_votes(tmp_path / "votes"), out=tmp_path / "certificates")
    asked = [sys.executable, "-c", READ, str(tmp_path / "votes"), str(tmp_path / "certificates")]
    finished = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert finished.stdout == "0\n"
