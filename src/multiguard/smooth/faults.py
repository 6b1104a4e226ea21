"""Whose fault it is: the draw that a classifier fails on alone, or none in particular."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from multiguard.errors import ModelError, MultiGuardError
from multiguard.smooth.batches import Batch, Segment

NOT_FINITE = "returned a score that is NaN or infinite"
_LONGEST = 300
# What the device, its libraries or a compiler say when they fail: this process may do nothing right any more, whatever
# it is given.
_DEAD = ("CUDA error", "HIP error", "CUDNN_STATUS", "CUBLAS_STATUS", "CUSOLVER_STATUS", "CUFFT", "Triton Error")
_DEAD_KINDS = ("InductorError", "BackendCompilerFailed")
# In lower case; a library of the device, torch on a CPU, the system, onnxruntime.
_NO_MEMORY = ("alloc_failed", "can't allocate memory", "cannot allocate memory", "failed to allocate memory")


@dataclass(frozen=True)
class Fault:
    """The first draw of an image that the classifier fails on, and what it does there.

    Attributes:
        draw: The index of the draw.
        problem: What goes on after the words "the classifier".
    """

    draw: int
    problem: str

    def __str__(self) -> str:
        return f"draw {self.draw}: the classifier {self.problem}"


def problem_of(error: Exception) -> str:
    """What an exception says, in one line of bounded length."""
    said = str(error) if isinstance(error, MultiGuardError) else f"it failed with {type(error).__name__}: {error}"
    words = " ".join(said.split())
    return f"cannot be sampled: {words if len(words) <= _LONGEST else words[:_LONGEST] + ' ...'}"


def pieces(batch: Batch) -> list[Batch]:
    """A batch in smaller ones: each image alone, then one image's draws in halves; none of a single draw."""
    if len(batch.segments) > 1:
        return [Batch((segment,)) for segment in batch.segments]
    (whole,) = batch.segments
    half = whole.rows // 2
    parts = [(whole.start, half), (whole.start + half, whole.rows - half)]
    return [Batch((Segment(whole.job, start, rows),)) for start, rows in parts if half]


def blank(batch: Batch) -> Batch:
    """The same draws of a black image: what fails on it is the classifier's fault and no image's."""
    jobs = [replace(segment.job, image=torch.zeros_like(segment.job.image)) for segment in batch.segments]
    parts = zip(batch.segments, jobs, strict=True)
    return Batch(tuple(Segment(job, segment.start, segment.rows) for segment, job in parts))


def first_draw(batch: Batch) -> int:
    """The index of the first draw of a batch."""
    return int(batch.draws()[0])


def blamed(batch: Batch, problem: str) -> ModelError:
    """An error that names the image of a batch, and the draw where it is a single one."""
    draw = f", draw {first_draw(batch)}" if batch.rows == 1 else ""
    return ModelError(f"image {batch.image_of(0)!r}{draw}: the classifier {problem}.")


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, also where a library said so or a compiler wrapped it in its own way."""
    return any(
        isinstance(cause, torch.OutOfMemoryError | MemoryError) or any(words in said for words in _NO_MEMORY)
        for cause, said in _causes(error)
    )


def device_dead(error: Exception) -> bool:
    """Whether the device, or what drives it, is to blame and no image."""
    return any(
        type(cause).__name__ in _DEAD_KINDS or any(words.lower() in said for words in _DEAD)
        for cause, said in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[tuple[BaseException, str]]:
    """The error and what it came from, each with what it says in lower case."""
    while error is not None:
        yield error, str(error).lower()
        error = error.__cause__ or error.__context__
