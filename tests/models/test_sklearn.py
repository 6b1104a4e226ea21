"""scikit-learn estimators: every shape in which they return one score per label."""

import pickle
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from multiguard.certify import TopK
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models import load
from multiguard.models.sklearn import estimator_hash
from multiguard.smooth import Smoother

RNG = np.random.default_rng(0)
X = RNG.random((80, 6))
Y = (X[:, :3] + 0.1 * RNG.random((80, 3)) > 0.5).astype(int)


def present(model):
    """The probability of each label by scikit-learn's own convention for one array per label."""
    return np.stack([rows[:, 1] for rows in model.predict_proba(X)], axis=1)


PROBABILITIES = {
    "one against rest": (OneVsRestClassifier(LogisticRegression()), lambda m: m.predict_proba(X)),
    "chain": (ClassifierChain(LogisticRegression()), lambda m: m.predict_proba(X)),
    "network": (MLPClassifier([4], max_iter=20), lambda m: m.predict_proba(X)),
    "forest": (RandomForestClassifier(5, random_state=0), present),
    "trees": (ExtraTreesClassifier(5, random_state=0), present),
    "tree": (DecisionTreeClassifier(random_state=0), present),
    "neighbours": (KNeighborsClassifier(3), present),
    "one per label": (MultiOutputClassifier(LogisticRegression()), present),
    "pipeline": (make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)), present),
}
SCORES = {
    "margins": OneVsRestClassifier(LinearSVC()),
    "ridge": RidgeClassifier(),
    "chain of margins": ClassifierChain(LinearSVC()),
    "pipeline of margins": make_pipeline(StandardScaler(), OneVsRestClassifier(SGDClassifier(random_state=0))),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", PROBABILITIES)
def test_probabilities(kind):
    """The scores are the estimator's own probabilities, one per label."""
    model, expected = PROBABILITIES[kind]
    model.fit(X, Y)
    classifier = load(model)
    assert (classifier.output, classifier.label_names) == ("probabilities", ("0", "1", "2"))
    scores = classifier(torch.from_numpy(X))
    assert np.allclose(scores.numpy(), expected(model), atol=1e-6)


@pytest.mark.parametrize("kind", SCORES)
def test_decision_function(kind):
    """Without probabilities the decision function ranks the labels; its kind is not declared."""
    model = SCORES[kind].fit(X, Y)
    classifier = load(model, labels=["cat", "dog", "emu"])
    assert classifier.output is None
    assert np.allclose(classifier(torch.from_numpy(X)).numpy(), model.decision_function(X), atol=1e-6)


def test_named_columns(recwarn):
    """An estimator that was fitted on a data frame gets one, so that columns are chosen by their names."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("uvwxyz"))
    chosen = ColumnTransformer([("scaled", StandardScaler(), ["u", "w"]), ("rest", "passthrough", ["v"])])
    model = make_pipeline(chosen, OneVsRestClassifier(LogisticRegression())).fit(frame, Y)
    classifier = load(model)
    assert classifier.feature_names == tuple("uvwxyz")
    assert np.allclose(classifier(torch.from_numpy(X)).numpy(), model.predict_proba(frame), atol=1e-6)
    assert not list(recwarn)
    with pytest.raises(ModelError, match="fitted on 6 columns, and a row has 5 values"):
        classifier(torch.from_numpy(X[:, :5]))


def test_label_of_one_class():
    """A label that was always or never there in training has probability 1 or 0."""
    constant = np.stack([Y[:, 0], np.zeros(80, int), np.ones(80, int)], axis=1)
    classifier = load(RandomForestClassifier(3, random_state=0).fit(X, constant))
    assert (classifier(torch.from_numpy(X))[:, 1:].numpy() == [0.0, 1.0]).all()


def test_names_of_classes():
    """The classes of a single-label estimator are its labels."""
    model = LogisticRegression().fit(X, np.array(["cat", "dog"])[Y[:, 0]])
    assert load(model).label_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (RandomForestClassifier(), {}, "fit it first"),
        (LogisticRegression().fit(X, Y[:, 0]), {"output": "logits"}, "predict_proba returns probabilities"),
        (LogisticRegression().fit(X, Y[:, 0]), {"labels": ["a"]}, "returns 2 scores, and --labels"),
        (LogisticRegression().fit(X, Y[:, 0]), {"weights": "x.pth"}, "has its own weights"),
    ],
)
def test_unsuitable_estimator(model, options, message):
    """What does not fit is one clear line."""
    with pytest.raises(ModelError, match=message):
        load(model, **options)


def test_label_of_three_classes():
    """A label with three classes is neither there nor not."""
    model = RandomForestClassifier(3, random_state=0).fit(X, np.stack([Y.sum(1), Y[:, 0]], axis=1))
    with pytest.raises(ModelError, match="expected 0 and 1"):
        load(model)(torch.from_numpy(X))


FIT = """
import sys
sys.path[:0] = {path!r}
from tests.models.test_sklearn import HASHED, X, Y
from multiguard.models.sklearn import estimator_hash
print([estimator_hash(model.fit(X, Y)) for model in HASHED])
"""
HASHED = [
    RandomForestClassifier(5, random_state=0),
    KNeighborsClassifier(3, algorithm="kd_tree"),
    OneVsRestClassifier(LogisticRegression()),
    make_pipeline(StandardScaler(), MultiOutputClassifier(LogisticRegression())),
]


def test_hash():
    """Fitting again, using, copying and another process leave the hash as it is; other data changes it."""
    found = [estimator_hash(model.fit(X, Y)) for model in HASHED]
    for model, digest in zip(HASHED, found, strict=True):
        model.predict_proba(X)
        assert digest == estimator_hash(model) == estimator_hash(pickle.loads(pickle.dumps(model)))
        assert load(model).weights_hash == digest
        assert estimator_hash(clone(model).fit(X[::-1] + 1, Y)) != digest
    again = subprocess.run([sys.executable, "-c", FIT.format(path=sys.path)], capture_output=True, text=True)
    assert again.stdout == f"{found}\n", again.stderr


SCALE = """
def scale(rows): return rows * {factor}
def named(rows): return rows if "a" in {{"a", "b", "c"}} else -rows
class Own:
    def helper(self): return {factor}
"""


def own_estimator(monkeypatch, tmp_path, factor, name):
    """A pipeline with a function, or an object, of the user's own module."""
    module = ModuleType("own_scale")
    exec(SCALE.format(factor=factor), vars(module))
    module.__file__ = str(tmp_path / "own_scale.py")
    (tmp_path / "own_scale.py").write_text(SCALE.format(factor=factor))
    monkeypatch.setitem(sys.modules, "own_scale", module)
    part = getattr(module, name)
    step = FunctionTransformer(part) if name != "Own" else FunctionTransformer(kw_args={"own": part()}, func=None)
    return make_pipeline(step, OneVsRestClassifier(LogisticRegression())).fit(X, Y) if name != "Own" else step


@pytest.mark.parametrize("name", ["scale", "Own"])
def test_hash_of_own_code(monkeypatch, tmp_path, name):
    """A function or class of the user's own is hashed with its file: another file is another estimator."""
    one, same, other = (estimator_hash(own_estimator(monkeypatch, tmp_path, factor, name)) for factor in (2, 2, 3))
    assert one == same != other
    assert None not in (one, other)


def test_hash_of_a_lambda(tmp_path):
    """An estimator that cannot be pickled has no hash, and starts no run that could be resumed, whatever its name."""
    model = make_pipeline(FunctionTransformer(lambda rows: rows), OneVsRestClassifier(LogisticRegression())).fit(X, Y)
    assert (load(model).weights_hash, load(model).name) == (None, "the callable")
    smoother = Smoother(load(model, name="mine"), sigma=0.5, device="cpu")
    with pytest.raises(InvalidInputError, match="cannot be pickled"):
        smoother.certify((X[:2], Y[:2]), TopK(1, 1), draws=10, out=tmp_path / "run")


class OneTree(ClassifierMixin, BaseEstimator):
    """What XGBoost's multi-label model is: a column per label, and the classes 0 and 1 of all of them."""

    def fit(self, rows, labels):
        self.inner_ = MultiOutputClassifier(LogisticRegression()).fit(rows, labels)
        self.classes_, self.n_features_in_ = np.array([0, 1]), rows.shape[1]
        return self

    def predict_proba(self, rows):
        return np.stack([found[:, 1] for found in self.inner_.predict_proba(rows)], axis=1)


def test_columns_and_classes():
    """The scores are counted where the classes are of each label, as XGBoost's are."""
    classifier = load(OneTree().fit(X, Y))
    assert classifier.label_names == tuple(map(str, range(Y.shape[1])))
    assert np.allclose(classifier.scores(X.astype(np.float32)), classifier.network.model.predict_proba(X), atol=1e-5)
