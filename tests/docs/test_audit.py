"""The signing commands of docs/audit.md work as they are written, where their tools are there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1].splitlines()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_ssh_signature(tmp_path):
    """ssh-keygen signs and verifies a file; a changed one fails."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "KEY"], check=True)
    public = (tmp_path / "KEY.pub").read_text()
    (tmp_path / "SIGNERS").write_text(f"NAME {public}")
    (tmp_path / "certificates.parquet").write_bytes(b"radii")
    sign, verify = (line for line in COMMANDS if line.startswith("ssh-keygen"))
    subprocess.run(sign, shell=True, cwd=tmp_path, check=True)
    subprocess.run(verify, shell=True, cwd=tmp_path, check=True)
    (tmp_path / "certificates.parquet").write_bytes(b"larger radii")
    assert subprocess.run(verify, shell=True, cwd=tmp_path).returncode != 0
