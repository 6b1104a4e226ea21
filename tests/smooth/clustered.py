"""Models that actors and subprocesses load from this file; files in the working directory tell them what to do."""

import os
import signal
import time
from pathlib import Path

import numpy as np

WEIGHTS = np.random.default_rng(0).integers(-8, 9, (3 * 16 * 16, 10)).astype(np.float32) / 8


def scores(images):
    """Exact scores: whole numbers over a power of two; slow where a file says so, killed once where one says so."""
    if Path("slow").exists():
        time.sleep(0.05)
    if len(images) > 8 and Path("kill").exists():
        Path("kill").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.stack([image.ravel() @ WEIGHTS for image in images])
