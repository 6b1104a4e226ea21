"""What each process of `test_loop_restarts` does: train by the command, with one accident in the second process."""

import os
import shutil
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

JOB = "train --data digits --model cnn:2 --size 16 --images 64 --val-images 60 --epochs 4 --out"


def stop_after_epoch(accident: str, out: Path) -> None:
    """End or stop this process once an epoch is stored."""
    while not (out / "state/last.safetensors").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL if accident == "kill" else signal.SIGSTOP)


def prepare(accident: str, out: Path, source: Path) -> None:
    """The accident of the second process: it stops after an epoch, or runs edited code of multiguard."""
    if accident != "edit":
        threading.Thread(target=stop_after_epoch, args=(accident, out), daemon=True).start()
        return
    copy = out.parent / "edited"
    shutil.copytree(source, copy / "multiguard", ignore=shutil.ignore_patterns("weights", "__pycache__"))
    with (copy / "multiguard/train/losses.py").open("a") as file:
        file.write("\n# another loss\n")
    sys.path.insert(0, str(copy))


def main(accident: str, out: str, source: str) -> None:
    """Train, with the accident at the first start of the second process."""
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        prepare(accident, Path(out), Path(source))
    from multiguard.cli.main import run
    from multiguard.train import loop

    loop.COLLECTIVES_TIMEOUT = timedelta(seconds=60)
    sys.argv = ["multiguard", *JOB.split(), out]
    run()


if __name__ == "__main__":
    main(*sys.argv[1:])
