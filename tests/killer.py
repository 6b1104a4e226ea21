"""A run that is killed before any one of its changes of files, in the process of the test."""

import os

CALLS = ("open", "replace", "unlink", "chmod")  # every change of a folder goes through one of these


class Killer:
    """Ends a run before its n-th change of a file; from then on no file is changed, as after SIGKILL."""

    def __init__(self, monkeypatch) -> None:
        self.left, self.dead = None, False
        for name in CALLS:
            monkeypatch.setattr(os, name, self._guarded(getattr(os, name)))

    def _guarded(self, call):
        def guarded(*args, **kwargs):
            if call.__name__ == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return call(*args, **kwargs)
            if self.left is not None:
                self.left -= 1
                if self.left <= 0:
                    self.dead = True
                    raise OSError("the process is dead")
            return call(*args, **kwargs)

        return guarded

    def run(self, work, calls: int | None) -> bool:
        """Whether the run was killed before its change number `calls`; None never kills it."""
        self.left, self.dead = calls, False
        try:
            work()
        except Exception:
            assert self.dead
        killed, self.left, self.dead = self.dead, None, False
        return killed
