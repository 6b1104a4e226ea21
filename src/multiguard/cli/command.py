"""The command line as it was typed, for the record of what it makes."""

import shlex
import sys


def typed() -> str:
    """What to type to do the same again."""
    return shlex.join(["multiguard", *sys.argv[1:]])
