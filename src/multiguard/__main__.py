"""The command `multiguard`, also as `python -m multiguard`; Ctrl-C ends it in one line from its first import on."""

import gc
import os
import sys


def main() -> None:
    """Import the command line and run it."""
    gc.set_threshold(20_000)  # imports make many objects and hardly any garbage
    try:
        from multiguard.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("multiguard: interrupted; nothing is lost: run it again\n")
        sys.stderr.flush()
        os._exit(130)  # libraries that were half imported must not be torn down


if __name__ == "__main__":
    main()
