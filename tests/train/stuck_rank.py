"""What each process of `test_loop_restarts` does: train by the command, with one accident in the second process."""

import os
import shutil
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

ACCIDENT, OUT, SOURCE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
JOB = "train --data digits --model cnn:2 --size 16 --images 64 --val-images 60 --epochs 4 --out"


def stop_after_epoch() -> None:
    """End or stop this process once an epoch is stored."""
    while not (OUT / "state/last.safetensors").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL if ACCIDENT == "kill" else signal.SIGSTOP)


if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if ACCIDENT == "edit":
        copy = OUT.parent / "edited"
        shutil.copytree(SOURCE, copy / "multiguard", ignore=shutil.ignore_patterns("weights", "__pycache__"))
        with (copy / "multiguard/train/losses.py").open("a") as file:
            file.write("\n# another loss\n")
        sys.path.insert(0, str(copy))
    else:
        threading.Thread(target=stop_after_epoch, daemon=True).start()

from multiguard.cli.main import run  # noqa: E402 - after the choice of its code
from multiguard.train import loop  # noqa: E402

loop.COLLECTIVES_TIMEOUT = timedelta(seconds=15)
sys.argv = ["multiguard", *JOB.split(), str(OUT)]
run()
