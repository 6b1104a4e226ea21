"""`python -m multiguard`: the same as the command `multiguard`."""

from multiguard.cli.main import run

run()
