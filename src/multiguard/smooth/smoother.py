"""The smoothed classifier g around a base classifier f: votes by Monte Carlo, and prediction."""

import platform
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Rule
from multiguard.certify.arguments import check_radii
from multiguard.certify.noise import Noise, resolve_noise
from multiguard.certify.rules import default_rule
from multiguard.data.image import decode_image, image_pixels, read_image_bytes
from multiguard.data.in_memory import named_row
from multiguard.errors import ImageFailure, InvalidInputError, ModelError
from multiguard.io.names import shorten_names
from multiguard.io.progress import Report, progress_bar, time_words
from multiguard.models.classifier import Classifier, Output
from multiguard.models.loading import load
from multiguard.smooth.config import Precision, Settings, in_torch, resolve_device, resolve_settings
from multiguard.smooth.engine import Engine, Image, content_id, image_array, make_engine, to_pixels
from multiguard.smooth.noise_source import NoiseSource, Stream, noise_key, resolve_seed
from multiguard.smooth.prediction import LivePrediction, Prediction, best_of, confirm_labels
from multiguard.smooth.probe import check_unit, probe
from multiguard.smooth.stream import (
    MAX_ROWS,
    Batch,
    BatchSize,
    Job,
    Segment,
    Sizer,
    VoteStream,
    check_draws,
    whole_number,
)
from multiguard.votes.provenance import engine_words
from multiguard.votes.types import DrawVotes, LabelSets, as_array, packed_width, vote_dtype

if TYPE_CHECKING:
    from multiguard.evaluate import Results
    from multiguard.smooth.dataset import VoteRun
    from multiguard.smooth.predictor import Calibrated

_MANY_DRAWS, _LONG = 2000, 10.0  # from which it is worth a batch to say how long they take, and seconds to mention


class Smoother:
    """The smoothed classifier g of any model: what it predicts and certifies holds with probability 1 - alpha.

    The noise of a draw is a function of (noise seed, image id, draw), whatever the batches. Classifiers of arrays
    (NumPy functions, ONNX, scikit-learn) run without torch. A torch module is moved to the device and put in evaluation
    mode, again at the start of each run. Threads may share a smoother: their batches take turns. Options left at None
    follow the device: plain float32 on a CPU; bfloat16 autocast, channels last and torch.compile on CUDA.

    Args:
        model: The base classifier f, a fixed function of one noisy input: an `nn.Module`, a function of a batch, a
            scikit-learn estimator, an ONNX session, a Hugging Face model, or whatever `load` takes.
        sigma: The noise is N(0, sigma^2) in the unit of the input, which for images is that of pixels in [0, 1].
            Certificates are then about perturbations of bounded l2-norm.
        noise: Instead of sigma, another noise, and so another attacker: `Uniform`, `PixelAblation` or `BandAblation`.
        labels: The label names in the order of the scores, any sequence of them; by default the model's own, or else
            their indices.
        output: Whether scores are "logits" or "probabilities"; only a score threshold needs to know.
        image_size: (height, width) of images; it declares inputs to be images, whose values must lie in [0, 1].
        k_max: K', the number of ranked labels kept per draw, for `TopK`; by default 10, or all if there are fewer.
        score_threshold: For `Threshold`, keep the set of labels with at least this probability instead of ranked
            labels. Logits are compared with its logit.
        device: The device that a torch model runs on; by default CUDA if available.
        batch_size: The rows per batch, or "auto". It halves when CUDA runs out of memory.
        clamp: Whether f clamps the noisy input to [0, 1] before anything else.
        precision: "float32", "bfloat16" or "float16" (autocast).
        compile: Whether to compile the classifier together with its noise; False also keeps an ONNX network on
            onnxruntime, where OpenVINO is installed.
        noise_source: What makes the noise, to reproduce the noise of a CUDA run on a CPU.

    >>> from multiguard import TopK
    >>> inputs, true = np.eye(3), [["cat"], ["dog"], ["emu"]]  # three rows of three features
    >>> smoother = Smoother(lambda rows: rows.clone(), sigma=0.25, labels=["cat", "dog", "emu"], device="cpu")
    >>> results = smoother.certify((inputs, true), TopK(1, k_prime=1), draws=1000, progress=False)
    >>> results.recall(0.25)
    1.0
    """

    def __init__(
        self,
        model: Any,
        sigma: float | None = None,
        *,
        noise: Noise | None = None,
        labels: Sequence[str] | None = None,
        output: Output | None = None,
        image_size: tuple[int, int] | None = None,
        k_max: int | None = None,
        score_threshold: float | None = None,
        device: Any = None,
        batch_size: BatchSize = "auto",
        clamp: bool = False,
        precision: Precision | None = None,
        compile: bool | None = None,  # noqa: A002 - torch's own word
        noise_source: NoiseSource | None = None,
    ) -> None:
        self.noise = resolve_noise(sigma, noise)
        classifier = load(model, labels=labels, output=output, image_size=image_size)
        if in_torch(classifier, device, noise_source, (precision, compile)):
            classifier = classifier.module()
        self._options: dict[str, Any] = {"k_max": k_max, "score_threshold": score_threshold, "device": device}
        self._options |= {"clamp": clamp, "precision": precision, "compile": compile, "noise_source": noise_source}
        self._device = resolve_device(classifier, device)
        self.classifier = self._placed(classifier)
        self._sizer = Sizer(batch_size, on_cpu=self._device == "cpu", lanes=getattr(classifier.network, "lanes", 1))
        self._ready = False  # whether the first input has been seen
        self._settings: Settings | None = None
        self._engine: Engine | None = None
        self._making = RLock()
        self._probed = "", 0  # the checksum of the state that was probed, and the rows of its largest batch
        if self.classifier.num_labels is not None:
            _ = self.settings  # what is wrong with the options is said now

    @property
    def settings(self) -> Settings:
        """How the classifier is executed; unknown, as its number of labels, before its first input."""
        if self._settings is not None:
            return self._settings
        settings = resolve_settings(self.classifier, self.noise, **self._options)
        if self.classifier.takes is not None:  # else the first input decides
            self._settings = settings
        return settings

    @property
    def engine(self) -> Engine:
        """What makes noise and votes; there is none before the first input."""
        with self._making:
            if self._engine is None:
                self._engine = make_engine(self.classifier, self.settings)
            return self._engine

    @property
    def machine(self) -> dict[str, Any]:
        """Where and by what the classifier runs, by the names of `Provenance`."""
        if self.classifier.takes == "tensors":
            from multiguard.smooth.torch_engine import torch_execution

            return torch_execution(self.settings.device)
        engine = getattr(self.classifier.network, "engine", "arrays")
        return {"device": f"cpu {platform.machine()}, {engine}", "tf32_matmul": False, "tf32_convolution": False}

    @property
    def engine_words(self) -> str:
        """What runs the classifier, such as "onnxruntime float32, 2 threads"."""
        words = engine_words(self.machine["device"], self.settings.precision, self.settings.compiled)
        lanes = getattr(self.classifier.network, "lanes", 1)
        return words if lanes == 1 else f"{words}, {lanes} threads"

    def _placed(self, classifier: Classifier) -> Classifier:
        """The classifier in evaluation mode, on its device."""
        return classifier.module().eval().to(self._device) if classifier.takes == "tensors" else classifier

    def opened(self, image: Image) -> Image:
        """The pixels of an image file or a PIL image, resized for the classifier; any other input as an array."""
        size = self.classifier.image_size
        side = size[0] if size is not None and size[0] == size[1] else None
        if isinstance(image, str | Path):
            return decode_image(read_image_bytes(Path(image)), side, source=Path(image))
        if hasattr(image, "getbands"):  # a PIL image
            return image_pixels(image, side)
        return named_row(image, self.classifier.feature_names)

    def find_labels(self, image: Image) -> tuple[str, ...]:
        """The label names; the first input shows what a function takes, and counts unnamed scores."""
        with self._making:
            if not self._ready:
                pixels = to_pixels(image_array("image", image, self.classifier.image_size))[None]
                device, precision = self._options["device"], self._options["precision"] or "float32"
                ready = self.classifier.ready(np.array(pixels, np.float32, order="C"), device)
                self._device = resolve_device(ready, device)
                if self._options["compile"] is not False or precision != "float32":
                    ready = ready.fitted(pixels, precision)
                self.classifier, self._ready = self._placed(ready), True
        return self.classifier.label_names

    def probe(self, images: Sequence[Image], most_rows: int = MAX_ROWS) -> list[str]:
        """What looks wrong with the model, seen on these images of one shape, in small batches and in one of full size.

        The size is that of the batches of `run`, at most `most_rows`. A model that is no fixed function of one image,
        and one whose scores cannot be what they are declared to be, raises `ModelError`: certificates of it would be
        false. `vote_dataset`, `votes`, `predict` and `certify` probe by themselves, and raise `ModelError`
        where the model has changed itself at the end.

        >>> import torch
        >>> dropout = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 3))
        >>> Smoother(lambda rows: dropout(rows), sigma=0.5, device="cpu").probe([np.ones(3)])
        Traceback (most recent call last):
        multiguard.errors.ModelError: the callable answers the same batch differently each time: ...
        """
        jobs = [self.job(image, 1, noise_seed=0, image_id=f"image {index}") for index, image in enumerate(images)]
        unit = [warning for job in jobs for warning in check_unit(job.image, self.classifier, self.noise)]
        rows, found = min(self.rows(jobs[0]), most_rows), list[str]()
        if not getattr(self.classifier.network, "verified", False):
            found = probe(self.engine, self.classifier, self.settings, jobs[:rows], rows)
        self._probed = self.classifier.state_checksum(), rows
        return unit[:1] + found

    def begin(self, image: Image, most_rows: int = MAX_ROWS) -> str:
        """Before the votes of an image: `probe` sees each state of the model, and what it finds is warned of.

        Returns the `state_checksum` of the model, which it must still have when the votes are used (`end`).
        """
        image = self.opened(image)
        check_unit(image_array("image", image, None), self.classifier, self.noise)
        state, (probed, rows) = self.classifier.state_checksum(), self._probed
        if rows and state == probed:
            needed = self.rows(self.job(image, 1, noise_seed=0, image_id="image"))
            if min(needed, most_rows) <= rows:
                return state
        for warning in self.probe([image], most_rows):
            warnings.warn(warning, stacklevel=4)
        return self.classifier.state_checksum()

    def end(self, state: str) -> None:
        """Raises `ModelError` unless all parameters and buffers are those that `begin` saw."""
        if self.classifier.state_checksum() != state:
            raise ModelError(
                f"{self.classifier.name} has changed its own parameters or buffers since its votes began; it must not: "
                "votes of several models certify none"
            )

    def votes(
        self,
        image: Image,
        draws: int,
        *,
        noise_seed: int | None = None,
        image_id: str,
        first_draw: int = 0,
        stream: Stream = "certify",
    ) -> DrawVotes:
        """The votes of each draw: (draws, K') uint8, or uint16 where c > 256; `LabelSets` with a score threshold.

        Memory does not grow with `draws`, except for the votes themselves.

        Args:
            image: An array of any shape, uint8 or floating point. A uint8 value x of an image (channels, height,
                width) is x / 255; other shapes are taken as they are. The path of an image file and a PIL
                image are resized to the size of the classifier. A pandas Series, or a data frame of one row, is read
                by the names of its columns.
            draws: n, the number of noisy copies to classify.
            noise_seed: The seed of the noise; None draws a random one, which is not kept.
            image_id: The id of the image; it keys the noise.
            first_draw: The index of the first draw, to continue where an earlier call ended.
            stream: "certify"; "pilot" for draws that choose labels and never certify them; "bare" for no noise at all.

        >>> from multiguard.models import load
        >>> f = load(lambda x: x.flatten(1)[:, :3], labels=["cat", "dog", "emu"], output="logits")
        >>> image = np.array([9.0, 5.0, -5.0])
        >>> Smoother(f, sigma=0.5, device="cpu").votes(image, 2, noise_seed=0, image_id="a")  # ranked labels
        array([[0, 1, 2],
               [0, 1, 2]], dtype=uint8)
        >>> sets = Smoother(f, sigma=0.5, score_threshold=0.5, device="cpu").votes(image, 1, noise_seed=0, image_id="a")
        >>> sets.hits()
        array([[ True,  True, False]])
        """
        noise_seed = resolve_seed(noise_seed)
        job = self.job(image, draws, noise_seed=noise_seed, image_id=image_id, first_draw=first_draw, stream=stream)
        most_rows = 1 << (job.draws - 1).bit_length()
        state = self.begin(image, most_rows)
        ((_, votes),) = self.run([job], most_rows=most_rows)
        self.end(state)
        found: DrawVotes = votes
        return found

    def noisy(
        self, image: Image, draw: int, *, noise_seed: int, image_id: str, stream: Stream = "certify"
    ) -> NDArray[np.float32]:
        """The noisy copy that the classifier gets in this draw, for display; arguments as in `votes`."""
        job = self.job(image, 1, noise_seed=noise_seed, image_id=image_id, first_draw=draw, stream=stream)
        noisy: NDArray[np.float32] = self.engine.noisy(Batch((Segment(job, 0, 1),)))[0]
        return noisy

    def job(
        self,
        image: Image,
        draws: int,
        *,
        noise_seed: int,
        image_id: str,
        first_draw: int = 0,
        stream: Stream = "certify",
    ) -> Job:
        """Draws to be made by `run`; arguments as in `votes`. The image is copied."""
        count, first = check_draws(draws, first_draw), whole_number("first_draw", first_draw)
        key = noise_key(whole_number("noise_seed", noise_seed), image_id, stream)
        array = image_array(image_id, self.opened(image), self.classifier.image_size)
        self.find_labels(array)
        self.noise.check_shape(f"image {image_id!r}", array.shape)
        self.noise.check_draws(first, count)
        return Job(image_id, key, np.array(array, order="C"), first, count, noisy=stream != "bare")

    def rows(self, job: Job) -> int:
        """The rows of a batch of images like this job's, as many as fit."""
        return self._sizer.rows(job)

    def run(
        self, jobs: Iterable[Job], *, steady: bool = False, record_failures: bool = False, most_rows: int = MAX_ROWS
    ) -> Iterator[tuple[Job, Any]]:
        """Each job with its votes, in order; jobs of any number of draws share batches.

        The next job is taken only when its rows are due, so `jobs` may wait for votes that this call has yielded. With
        `steady`, all batches have one size on a CPU, too, the last ones padded: the last bits of a score may depend on
        the size of its batch, but not on its row in it. With `record_failures` a job that the classifier fails on
        yields an image failure, whatever the batches; if no image is to blame, it raises `ModelError`. No batch is
        larger than `most_rows`.
        """
        self.classifier.eval()
        jobs = iter(jobs)
        if not (first := list(islice(jobs, 1))):
            return
        # Only now the number of labels is known for certain: taking the first job counts unnamed ones.
        labels, ranks = len(self.classifier.label_names), self.settings.k_max
        width, dtype = (packed_width(labels), np.uint8) if ranks is None else (ranks, vote_dtype(labels))
        padded = self.settings.compiled or (steady and self.settings.device == "cpu")
        how: dict[str, Any] = {"padded": padded, "record_failures": record_failures, "most_rows": most_rows}
        stream = VoteStream(self.engine, self._sizer, width=width, dtype=dtype, **how)
        for job, rows in stream.outcomes(chain(first, jobs)):
            if ranks is None and not isinstance(rows, ImageFailure):
                yield job, LabelSets(rows.astype(np.uint8, copy=False), labels)
            else:
                yield job, rows

    def predict(
        self,
        image: Image,
        rule: Rule | None = None,
        *,
        pilot_draws: int = 100,
        draws: int = 1000,
        radii: Sequence[float] | None = None,
        alpha: float = 0.001,
        noise_seed: int | None = None,
        image_id: str | None = None,
    ) -> Prediction:
        """The labels of the smoothed classifier; with probability 1 - alpha all radii, of labels and set, hold.

        Pilot draws choose the labels, fresh draws confirm them: labels chosen and confirmed by the same draws
        would be confirmed too often. A `BandAblation` votes once per band, so its prediction holds for certain, and
        the numbers of draws, `radii` and alpha have no effect.

        Args:
            image: The image, as for `votes`.
            rule: The smoothed classifier: `TopK` or `Threshold`. The default is `TopK(5)`, or fewer if there are fewer
                labels; with a score threshold `Threshold(0.5)`.
            pilot_draws: The number of draws that choose the labels.
            draws: The number of draws that confirm them; with `radii` the most.
            radii: Confirm them by the method betting, with as many draws as these radii need: no more once all claims
                at them are proved, or would hardly be. By default all draws are taken.
            alpha: The probability of any false claim in the prediction.
            noise_seed: The seed of the noise; by default a random one, which the prediction records.
            image_id: The id of the image; it keys the noise. By default the hash of the image.

        >>> from multiguard import TopK
        >>> smoother = Smoother(lambda x: x.clone(), sigma=0.5, labels=["cat", "dog", "emu"], device="cpu")
        >>> smoother.predict(np.array([2.0, 1.0, 0.0]), TopK(k=1, k_prime=1), noise_seed=0)
        Prediction of 1 label, noise seed 0:
          cat: stays up to 0.600
        """
        if self.noise.positions is not None:
            return self._predict_by_positions(image, rule, self.noise.positions, image_id)
        from multiguard.smooth.schedule import AdaptivePlan

        most = check_draws(draws)
        options: dict[str, Any] = {"pilot_draws": pilot_draws, "alpha": alpha, "image_id": image_id}
        live = LivePrediction(self, image, rule, noise_seed=noise_seed, **options)
        stops = () if radii is None else AdaptivePlan(live.rule, tuple(check_radii(radii)), most).stops
        live.draw(live.pilot_draws)
        chosen = live.prediction()
        if radii is None:
            live.draw(most)
            live.check_state()
            options = {"num_labels": len(live.label_names), "noise": self.settings.noise, "alpha": alpha}
            return best_of(chosen, confirm_labels(chosen.labels, live.votes, live.rule, **options))
        for stop in stops:
            live.draw(stop - live.draws)
            if live.settled(radii, most):
                break
        return live.prediction()

    def rule_for(self, rule: Rule | None) -> Rule:
        """The rule, checked; without one the default for the labels of the classifier, which must be known."""
        labels = len(self.classifier.label_names)
        rule = default_rule(self.settings.rule_name, labels) if rule is None else rule
        self.settings.check_rule(rule, labels)
        return rule

    def _predict_by_positions(
        self, image: Image, rule: Rule | None, positions: int, image_id: str | None
    ) -> Prediction:
        image = self.opened(image)
        names = self.find_labels(image)
        rule, name = self.rule_for(rule), content_id(image) if image_id is None else image_id
        votes = as_array(self.votes(image, positions, noise_seed=0, image_id=name), rule)
        labels = rule.returned(votes, len(names))
        options: dict[str, Any] = {"num_labels": len(names), "noise": self.noise, "alpha": 0.5, "method": "enumerated"}
        found = confirm_labels(labels, votes, rule, **options)
        return replace(found, names=tuple(names[label] for label in labels), image_id=name)

    def certify(
        self,
        data: Any,
        rule: Rule | None = None,
        *,
        alpha: float = 0.001,
        methods: Sequence[Method] | None = None,
        draws: int | Literal["adaptive"] | None = None,
        max_draws: int = 4000,
        radii: Sequence[float] | None = None,
        pilot_draws: int = 100,
        out: str | Path | None = None,
        noise_seed: int | None = None,
        on_error: Literal["stop", "record"] = "stop",
        progress: bool = True,
    ) -> "Results":
        """What is proved of the data: the claims on each input hold with probability at least 1 - alpha.

        What looks wrong with the model or the data is warned of before the first draw: labels in another order than
        the scores, columns of a table on unequal scales, noise that the model cannot bear.
        Without labels (Y is None) pilot draws choose the labels that are certified, as in `predict`.

        Args:
            data: A pair (X, Y) of inputs and label sets, a torch dataset of items (x, y), a data loader of one, or a
                `Dataset`. An array of labels is multi-hot, one 0 or 1 per label; a list holds indices or names. A
                list that could be either raises an error. Columns of data frames are read by their names.
            rule: The smoothed classifier, by default as in `predict`.
            alpha: The probability of any false claim on an input.
            methods: The methods to prove with, the first for `Results.recall` and its like; by default "coupled"
                ("joint" for the threshold rule and for noise that is not Gaussian; "enumerated" for a `BandAblation`);
                for adaptive draws "betting", the only one that is valid then.
            draws: n, the number of draws per input: 1000 by default, for a `BandAblation` one per band. With
                "adaptive" each input takes as many as it needs, which pays where the model is expensive.
            max_draws: The most adaptive draws that an input takes.
            radii: Where more adaptive draws must be able to prove more; by default four that fit the noise, for a
                Gaussian sigma / 2, sigma, 3/2 sigma and 2 sigma.
            pilot_draws: The number of draws that choose labels where Y is None.
            out: A folder for votes and certificates, where the same call resumes an interrupted run. None keeps
                nothing on disk.
            noise_seed: The seed of the noise; by default a random one, which the results record.
            on_error: What to do if an input cannot be used, or the model fails on it: "stop" raises; "record" continues
                and counts it in the results.
            progress: Whether to show progress bars.

        >>> from multiguard import TopK
        >>> smoother = Smoother(lambda rows: rows.clone(), sigma=0.5, labels=["cat", "dog"], device="cpu")
        >>> data = np.array([[3.0, 0.0], [0.0, 0.1]]), [["cat"], ["dog"]]
        >>> results = smoother.certify(data, TopK(1, k_prime=1), noise_seed=0)
        >>> results.recall([0.0, 0.5, 1.0])
        array([0.5, 0.5, 0.5])
        """
        from multiguard.evaluate.certification import certify_votes
        from multiguard.evaluate.config import CertifyConfig, check_methods
        from multiguard.smooth.dataset import VoteRun, check_labels, open_data
        from multiguard.smooth.probe import expectations
        from multiguard.smooth.schedule import AdaptivePlan

        config, adaptive = CertifyConfig(alpha=alpha).replace(methods=methods or ()), draws == "adaptive"
        if radii is not None and not adaptive:
            raise InvalidInputError("radii say when adaptive draws stop; give draws='adaptive' with them")
        dataset = open_data(self, data)
        rule = self.rule_for(rule)
        check_methods(config.methods, rule, self.noise)
        labelled, config = check_labels(dataset), config.with_rule(rule)
        where = tuple(self.noise.default_radii if radii is None else radii)
        run = VoteRun(
            self,
            dataset,
            draws=None if draws == "adaptive" else draws,
            adaptive=AdaptivePlan(rule, where, max_draws, alpha) if adaptive else None,
            pilot_draws=0 if labelled or self.noise.enumerated else pilot_draws,
            labelled=labelled,
            noise_seed=noise_seed,
            on_error=on_error,
            resumable=out is not None,
        )
        for warning in expectations(run, rule, alpha, config.resolve(run.provenance).methods)[0]:
            warnings.warn(warning, stacklevel=2)
        folder = None if out is None else Path(out) / "certificates"
        with _progress(run, progress) as report:
            votes = run.votes(partial(report, "voting"), None if out is None else Path(out) / "votes")
            source: Literal["truth", "pilot"] = "truth" if labelled else "pilot"
            results = certify_votes(config, votes, labels=source, out=folder, force=True, progress=report)
        return replace(results, images=dataset)

    def calibrate(
        self,
        data: Any,
        *,
        recall: float,
        radius: float,
        wrong: float | None = None,
        confidence: float | None = None,
        k_prime: Sequence[int] = (),
        draws: int | None = None,
        new_draws: int | None = None,
        seed: int = 0,
        out: str | Path | None = None,
        noise_seed: int | None = None,
        progress: bool = True,
    ) -> "Calibrated":
        """On average the labels of its `predict` hold this fraction of the true ones, under attacks up to the radius.

        The average is over new images that are exchangeable with the images of `data`, over the draws and over `data`;
        with `confidence` it is over new images and draws, and holds with that confidence. If only the set of all labels
        would keep the promise, `InvalidInputError` says what can be promised.

        Args:
            data: Labelled inputs, as for `certify`.
            recall: The fraction of the true labels to promise.
            radius: The largest perturbation under which it is promised, in the unit of the noise.
            wrong: Promise at most this many wrong labels on average, too; takes `confidence`.
            confidence: The probability that the promise holds, over the choice of the inputs.
            k_prime: How many labels the model returns per draw: the best of these, by default of all up to `k_max`.
            draws: n, the number of draws per input of `data`, 1000 by default.
            new_draws: m, the number of draws for a new input, 120 by default.
            seed: The seed of the split of the inputs into those that choose, calibrate and test.
            out: A folder for the votes and calibration.json, where the same call resumes an interrupted run.
            noise_seed: The seed of the noise of these votes; by default a random one.
            progress: Whether to show progress bars.

        >>> rows, true = np.repeat(4 * np.eye(3), 30, axis=0), [[row // 30] for row in range(90)]
        >>> smoother = Smoother(lambda rows: rows + 0, sigma=0.5, labels=["cat", "dog", "emu"])
        >>> rows += np.random.default_rng(0).normal(size=rows.shape) / 2  # no input is there twice
        >>> calibrated = smoother.calibrate((rows, true), recall=0.9, radius=0.5, noise_seed=0, progress=False)
        >>> calibrated.predict(rows[40], noise_seed=0).names
        ('dog',)
        """
        from multiguard.evaluate.calibration import CALIBRATION_NAME, CalibrateConfig, calibrate
        from multiguard.smooth.dataset import VoteRun, check_labels, open_data
        from multiguard.smooth.predictor import Calibrated

        config = CalibrateConfig(recall, radius, wrong, confidence, tuple(k_prime), new_draws, seed)
        dataset = open_data(self, data)
        if not check_labels(dataset):
            raise InvalidInputError("data has no labels; a calibration needs the true ones")
        run = VoteRun(self, dataset, draws=draws, labelled=True, noise_seed=noise_seed, resumable=out is not None)
        file = None if out is None else Path(out) / CALIBRATION_NAME
        with _progress(run, progress) as report:
            votes = run.votes(partial(report, "voting"), None if out is None else Path(out) / "votes")
            shapes = {np.shape(dataset[position].image) for position in range(len(dataset))}
            if len(shapes) == 1 and len(shape := shapes.pop()) == 3:
                votes.image_size = shape[1], shape[2]
            found = calibrate(config, [votes], out=file, force=True, progress=partial(report, "choosing"))
        return Calibrated(self, found)

    def __repr__(self) -> str:
        f = self.classifier
        if f.num_labels is None:
            return f"Smoother({f.name}, labels unknown before the first input)"
        settings = self.settings
        kept = f"k_max={settings.k_max}" if settings.k_max else f"score_threshold={settings.score_threshold}"
        labels = f"{len(f.label_names)} labels ({shorten_names(f.label_names, 4)})"
        return f"Smoother({f.name}, noise={settings.noise}, {labels}, {kept}, device={settings.device!r})"


@contextmanager
def _progress(run: "VoteRun", show: bool) -> Iterator[Report]:
    """A progress bar; before draws that take long, a line about how long."""
    draws, inputs = run.provenance.draws, len(run.provenance.image_ids)
    if show and draws * inputs > _MANY_DRAWS and (seconds := run.seconds()) > _LONG:
        sys.stderr.write(f"{inputs} inputs x {draws} draws take about {time_words(seconds)}\n")
    with progress_bar("inputs", show=show) as report:
        yield report
