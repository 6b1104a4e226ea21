"""A run of a few seconds: the whole path on a handful of digits."""

import contextlib
import io
import sys

from multiguard.cli.main import run

RECIPE = """
data: {name: digits, images: 6, size: 16}
sigma: 0.5
train: {model: "cnn:4", images: 64, val_images: 40, epochs: 1}
vote: {draws: 60, shard_images: 4, noise_seed: 0}
certify: {k: 3, k_prime: 2, alpha: 0.05, methods: [joint, paper]}
sweep: {k: [2, 3], n: [30, 60]}
"""

# The second half of the demo, with the network of the first in place of the built-in tagger.
PHOTOS = """
data: {name: folder, labelled: false, images: 2}
sigma: 0.5
model: runs/demo/model
vote: {draws: adaptive, radii: [0.5], max_draws: 60, pilot_draws: 20}
certify: {k: 3, k_prime: 2}
"""


def command(*arguments):
    """The exit code, stdout and stderr of `multiguard` with these arguments, run in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["multiguard", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as left:
        return left.code or 0, out.getvalue(), err.getvalue()
    finally:
        sys.argv = before
    return 0, out.getvalue(), err.getvalue()


def state(folder):
    """For every file below a folder its bytes and its time of change."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
