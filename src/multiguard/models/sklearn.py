"""scikit-learn estimators as base classifiers: one score per label from whatever shape they return it in."""

import pickle
import sys
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np
from joblib.hashing import NumpyHasher
from numpy.typing import NDArray

from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.files import file_checksum
from multiguard.models.classifier import UNNAMED, ArrayNetwork, Classifier, ModelOptions, index_names
from multiguard.models.code import is_library, source_file

_PRESENT = (1, True, 1.0)  # how a label's class says that the label is there


def wrap_estimator(model: Any, options: ModelOptions, spec: str) -> Classifier:
    """The fitted estimator as a `Classifier`; `predict_proba` is preferred, and its scores are probabilities."""
    options.refuse_weights(spec)
    classes = getattr(model, "classes_", None)
    if classes is None:
        raise ModelError(f"{spec} has no classes_; fit it first, or give a function of a batch.")
    network = EstimatorNetwork(model, classes)
    if network.is_probability and options.output == "logits":
        raise ModelError(f"{spec}: predict_proba returns probabilities; leave out output='logits'.")
    names = _names(classes, _columns(model, network))
    options.check_count(len(names), spec)
    digest = estimator_hash(model)
    spec = type(model).__name__ if spec == UNNAMED and digest is not None else spec
    output = "probabilities" if network.is_probability else None
    return options.fill(labels=names, output=output).make_classifier(network, spec, digest)


def _columns(model: Any, network: "EstimatorNetwork") -> int | None:
    """The number of scores for a row of zeros; None where that is unknown. XGBoost's `classes_` do not tell it."""
    with suppress(Exception):  # any error of the user's classes; the first input will tell it
        return int(network(np.zeros((1, model.n_features_in_), np.float32)).shape[1])
    return None


def estimator_hash(model: Any) -> str | None:
    """The sha256 of a fitted estimator, its parameters and all that it has learnt; None if it cannot be pickled.

    It is the same in every process. What an estimator counts while it predicts is no part of it.

    >>> from sklearn.linear_model import LogisticRegression
    >>> one, other = ([[0.0], [1.0]], [0, 1]), ([[0.0], [2.0]], [0, 1])
    >>> estimator_hash(LogisticRegression().fit(*one)) == estimator_hash(LogisticRegression().fit(*one))
    True
    >>> estimator_hash(LogisticRegression().fit(*one)) == estimator_hash(LogisticRegression().fit(*other))
    False
    """
    try:
        copy = pickle.loads(pickle.dumps(model))  # objects that an estimator shares are shared as in any copy of it
        return str(_EstimatorHasher("sha256").hash(copy))
    except Exception:  # any error of the user's classes
        return None


class _EstimatorHasher(NumpyHasher):  # type: ignore[misc]
    """joblib's hash; the trees of nearest neighbours count their queries, so only their arrays are hashed."""

    def save(self, obj: Any) -> None:
        """Hash one object; a function or class of the user's own, which pickle only names, by the file that has it."""
        if isinstance(obj, FunctionType | type) and not is_library(str(obj.__module__)):
            if (file := source_file(sys.modules.get(obj.__module__))) is None:
                raise ValueError(f"{obj.__qualname__} is in no file")
            obj = (obj.__qualname__, file_checksum(file))
        super().save(list(map(np.asarray, obj.get_arrays())) if hasattr(obj, "get_tree_stats") else obj)


class EstimatorNetwork(ArrayNetwork):
    """A callable (B, ...) -> (B, c); each input is flattened to one row.

    An estimator that was fitted on named columns gets data frames with these names (`feature_names`).
    """

    def __init__(self, model: Any, classes: Any) -> None:
        names = getattr(model, "feature_names_in_", None)
        self.feature_names = None if names is None else tuple(map(str, names))
        self.is_probability = hasattr(model, "predict_proba")
        self.model = model
        self._score = model.predict_proba if self.is_probability else model.decision_function
        self._classes = classes

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """One score per row and label."""
        found = self._score(self._table(rows.reshape(len(rows), -1).astype(np.float64)))
        if isinstance(found, list):  # one array per label, with one column per class of it
            return np.stack([_present(one, own) for one, own in zip(found, self._classes, strict=True)], axis=1)
        found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
        return found if found.ndim > 1 else np.stack([-found, found], axis=1)  # two classes, one score

    def check_unchanged(self, weights_hash: str | None) -> None:
        """Raises unless the estimator has the hash that it had when it was loaded."""
        name = type(self.model).__name__
        if weights_hash is None:
            raise InvalidInputError(
                f"{name} cannot be pickled, so nothing identifies what it has learnt, and a resumed run must "
                "not mix the votes of two estimators; give it functions of a module in place of lambdas."
            )
        if estimator_hash(self.model) != weights_hash:
            raise ModelError(f"{name} was fitted or changed after it was loaded; make a new Smoother of it.")

    def _table(self, rows: NDArray[np.float64]) -> Any:
        """The rows as the estimator takes them: a data frame if it was fitted on one."""
        if self.feature_names is None:
            return rows
        if rows.shape[1] != len(self.feature_names):
            raise ModelError(
                f"it was fitted on {len(self.feature_names)} columns, and a row has {rows.shape[1]} values"
            )
        try:
            from pandas import DataFrame
        except ImportError as error:
            wanted = "it was fitted on named columns, which needs pandas; install it, or fit it on arrays"
            raise ModelError(wanted) from error
        return DataFrame(rows, columns=list(self.feature_names))


def _names(classes: Any, columns: int | None) -> tuple[str, ...]:
    """The names of the labels; where the classes are of each label, or not as many as the scores, they are numbered."""
    if isinstance(classes, list) or columns not in (None, len(classes)):
        return index_names(columns or len(classes))
    return tuple(map(str, classes))


def _present(scores: Any, classes: Any) -> NDArray[Any]:
    """The column of one label's scores that says that it is there."""
    known = [index for index, name in enumerate(classes) if name in _PRESENT]
    if len(classes) - len(known) > 1:
        raise ModelError(f"a label has the classes {list(classes)}; expected 0 and 1, absent and present")
    rows = np.asarray(scores, dtype=np.float64)
    return rows[:, known[0]] if known else np.zeros(len(rows))  # never present in its training
