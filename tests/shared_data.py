"""Real data that may lie beside the repository; whoever uses it says so and does without it where it is absent."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("MULTIGUARD_SHARED", Path(__file__).resolve().parents[2] / "shared"))
COCO_VOTES = SHARED / "data" / "votes" / "coco_val2014_sigma0.5.npz"
