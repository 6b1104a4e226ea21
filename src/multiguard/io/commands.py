"""Command lines for the record: with both seeds named, they reproduce a run."""

import shlex


def with_seeds(command: str, *, seed: int, noise_seed: int) -> str:
    """The command of a vote or a run with its seeds named, that of the sample of images and that of the noise.

    Any other command stays as it is.

    >>> with_seeds("multiguard vote --data coco --seed 3 --out votes", seed=3, noise_seed=71)
    'multiguard vote --data coco --seed 3 --out votes --noise-seed 71'
    >>> with_seeds("multiguard run digits", seed=0, noise_seed=71)
    'multiguard run digits --set data.seed=0 --set vote.noise_seed=71'
    """
    words = shlex.split(command)
    if words[1:2] == ["vote"]:
        named = {word.partition("=")[0] for word in words}
        for option, number in (("--seed", seed), ("--noise-seed", noise_seed)):
            words += [] if option in named else [option, str(number)]
    elif words[1:2] == ["run"]:
        for change in (f"data.seed={seed}", f"vote.noise_seed={noise_seed}"):
            words += [] if change in words else ["--set", change]
    return shlex.join(words)
