"""One call from any model and any data to results: the models that people hold, each run for real."""

import io
import re
import subprocess
import sys
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from multiguard import MultiGuardError, Smoother, Threshold, TopK, read_certificates, read_votes

FEATURES, LABELS = 8, 4
ROWS, HOT = make_multilabel_classification(60, FEATURES, n_classes=LABELS, random_state=0, allow_unlabeled=False)
ROWS = (ROWS / 10).astype(np.float32)
TEST = ROWS[:6], HOT[:6]
RULE = TopK(2, k_prime=1)
SIGMA = 0.1
MOST_MODULES = 55
QUICK = {"draws": 200, "noise_seed": 0, "progress": False}


UNLABELLED = [(row, []) for row in TEST[0]]


def network() -> nn.Module:
    """A linear layer fitted to the rows."""
    fitted = LogisticRegression()
    layer = nn.Linear(FEATURES, LABELS)
    weights = [fitted.fit(ROWS, column).coef_[0] for column in HOT.T]
    layer.weight.data = torch.tensor(np.stack(weights), dtype=torch.float32)
    nn.init.zeros_(layer.bias)
    return layer


def onnx_session():
    runtime = pytest.importorskip("onnxruntime")
    file = io.BytesIO()
    axes = {"dynamic_axes": {"rows": {0: "batch"}, "scores": {0: "batch"}}, "dynamo": False}
    torch.onnx.export(network(), torch.zeros(1, FEATURES), file, input_names=["rows"], output_names=["scores"], **axes)
    return runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])


def plain_scores(model):
    """The model's scores of the test rows, by its own call."""
    if hasattr(model, "run"):
        return model.run(None, {"rows": TEST[0]})[0]
    if isinstance(model, nn.Module):
        return model(torch.from_numpy(TEST[0])).detach().numpy()
    if hasattr(model, "predict_proba"):
        found = model.predict_proba(TEST[0])
        return np.stack([each[:, 1] for each in found], axis=1) if isinstance(found, list) else found
    try:
        return model(torch.from_numpy(TEST[0])).numpy()
    except (TypeError, AttributeError):
        return model(TEST[0])


def torch_function():
    weights = network().weight.detach()
    return lambda rows: rows.matmul(weights.T)


def numpy_function():
    weights = network().weight.detach().numpy()
    return lambda rows: np.dot(rows, weights.T)


MODELS = {
    "module": network,
    "torch function": torch_function,
    "numpy function": numpy_function,
    "one-vs-rest": lambda: OneVsRestClassifier(LogisticRegression()).fit(ROWS, HOT),
    "pipeline": lambda: make_pipeline(StandardScaler(), MLPClassifier((8,), random_state=0)).fit(ROWS, HOT),
    "trees": lambda: ExtraTreesClassifier(5, random_state=0).fit(ROWS, HOT),
    "onnx session": onnx_session,
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", MODELS)
def test_tabular_models(kind):
    """Rows without images are certified with every kind of model; with little noise it predicts its own best label."""
    model = MODELS[kind]()
    results = Smoother(model, SIGMA, device="cpu").certify(TEST, RULE, **QUICK)
    assert results.certificates.label_names == ("0", "1", "2", "3")
    assert [set(own) for own in results.certificates.labels] == [set(np.flatnonzero(row)) for row in TEST[1]]
    assert 0 < results.recall(SIGMA) <= results.recall(0.0) <= 1
    still = Smoother(model, 1e-6, device="cpu").certify(TEST, TopK(1, k_prime=1), **QUICK)
    best = np.argmax(plain_scores(model), axis=1)
    assert [own[0] for own in still.certificates.predicted] == best.tolist()


def test_hugging_face():
    """A Hugging Face model object brings its label names, and takes images in [0, 1]."""
    transformers = pytest.importorskip("transformers")
    names = {0: "cat", 1: "dog", 2: "emu"}
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic", id2label=names, label2id={}
    )
    model = transformers.ResNetForImageClassification(config)
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 16, 16), dtype=np.uint8)
    results = Smoother(model, 0.25, device="cpu").certify((images, [["cat"], ["dog"], []]), TopK(2, k_prime=1), **QUICK)
    assert results.certificates.label_names == ("cat", "dog", "emu")
    assert results.certificates.draws == (200, 200, 200)


def test_data_forms(tmp_path):
    """Arrays, a torch dataset, a loader and a data folder of ours give the same results for the same draws."""
    smoother = Smoother(network(), SIGMA, labels=list("abcd"), device="cpu")
    items = TensorDataset(torch.from_numpy(TEST[0]), torch.from_numpy(TEST[1]))
    forms = [
        TEST,
        items,
        DataLoader(items, batch_size=4),
        (TEST[0], [[f"{'abcd'[i]}" for i in np.flatnonzero(r)] for r in TEST[1]]),
    ]
    curves = [smoother.certify(data, RULE, **QUICK).curve().scores.recall for data in forms]
    for curve in curves[1:]:
        np.testing.assert_array_equal(curve, curves[0])


def test_same_path(tmp_path):
    """The results are made of the votes and the certificates in the folder, which the commands read."""
    results = Smoother(network(), SIGMA, device="cpu").certify(TEST, RULE, out=tmp_path, **QUICK)
    stored = read_certificates(tmp_path / "certificates")
    assert stored.votes_hash == results.votes_hash == read_votes(tmp_path / "votes").manifest_hash
    np.testing.assert_array_equal(stored.curve().scores.recall, results.curve().scores.recall)


def test_resume(tmp_path):
    """The same call resumes with the noise seed of its votes; other data, also beyond the first row, is refused."""
    smoother, options = Smoother(network(), SIGMA, device="cpu"), {"draws": 100, "progress": False, "out": tmp_path}
    first = smoother.certify(TEST, RULE, **options)
    again = smoother.certify(TEST, RULE, **options)
    assert again.votes_hash == first.votes_hash
    assert again.provenance["noise_seed"] == first.provenance["noise_seed"]
    changed = TEST[0] + (np.arange(6) == 5)[:, None].astype(np.float32)
    with pytest.raises(MultiGuardError, match="dataset"):
        smoother.certify((changed, TEST[1]), RULE, **options)


def test_unnamed_function(tmp_path):
    """A function without a name can be certified, but not into a folder, where another one might resume its votes."""
    smoother = Smoother(lambda rows: rows[:, :LABELS].clone(), SIGMA, device="cpu")
    smoother.certify(TEST, RULE, **QUICK)
    with pytest.raises(MultiGuardError, match="name"):
        smoother.certify(TEST, RULE, out=tmp_path, **QUICK)


def test_another_estimator(tmp_path):
    """A folder never returns the numbers of another estimator, whatever its name, nor of one fitted again."""
    options = {"draws": 50, "progress": False, "out": tmp_path}
    fitted = [OneVsRestClassifier(LogisticRegression(C=c)).fit(ROWS, HOT) for c in (1.0, 0.01)]
    first = Smoother(fitted[0], SIGMA, device="cpu")
    votes_hash = first.certify(TEST, RULE, **options).votes_hash
    assert Smoother(fitted[0], SIGMA, device="cpu").certify(TEST, RULE, **options).votes_hash == votes_hash
    with pytest.raises(MultiGuardError, match="weights_hash"):
        Smoother(fitted[1], SIGMA, device="cpu").certify(TEST, RULE, **options)
    fitted[0].fit(-ROWS, HOT)
    with pytest.raises(MultiGuardError, match="was fitted or changed after it was loaded"):
        first.certify(TEST, RULE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "joint"}, r"methods is 'joint'; expected a list"),
        ({"methods": ["jont"]}, "did you mean 'joint'"),
        ({"methods": ["enumerated"]}, "is for band noise"),
        ({"alpha": 2.0}, "alpha is"),
        ({"draws": "adaptive", "methods": ["joint"]}, "these votes are adaptive"),
        ({"radii": [0.5]}, "give draws='adaptive'"),
        ({"rule": "top-k"}, r"rule is 'top-k'; give TopK\(k, k_prime=...\) or Threshold"),
        ({"rule": TopK}, "give TopK"),
        ({"rule": TopK(9, 1)}, "k must be"),
        ({"data": (TEST[0], 0 * TEST[1])}, "none of the 6 inputs has a label"),
        ({"data": UNLABELLED}, "none of the 6 inputs has a label"),
        ({"data": DataLoader(UNLABELLED, batch_size=2)}, "none of the 6 inputs has a label"),
    ],
)
def test_refused_before_the_first_draw(options, message):
    """What is wrong with the arguments is said before the model is called at all."""
    calls = []

    def counted(rows):
        calls.append(len(rows))
        return rows[:, :LABELS].clone()

    smoother = Smoother(counted, SIGMA, labels=list("abcd"), device="cpu")
    with pytest.raises(MultiGuardError, match=message):
        smoother.certify(**{"data": TEST, "rule": RULE, **QUICK, **options})
    assert sum(calls) <= 2 * ("adaptive" in options.values()), "the first input shows what the model takes"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draws": 5}, "5 draws prove nothing by .* at alpha = 0.001 .* it takes"),
        ({"draws": 10, "alpha": 1e-9}, "10 draws prove nothing by .* at alpha = 1e-09 "),
        ({"draws": 5, "methods": ["coupled"]}, "5 draws prove nothing by the method coupled"),
        ({"draws": "adaptive", "max_draws": 5}, "5 draws prove nothing by the method betting"),
        ({"draws": 5, "alpha": 0.5}, None),
        ({"draws": 200}, None),
    ],
)
def test_too_few_draws(options, words):
    """Draws that can prove nothing by the rule, alpha and methods of the call are warned of; others are not."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        Smoother(network(), SIGMA, device="cpu").certify(TEST, RULE, **{**QUICK, **options})
    found = [str(each.message) for each in said if "prove nothing" in str(each.message)]
    assert len(found) == (words is not None)
    assert words is None or re.match(words, found[0])


def test_row_of_a_frame():
    """A Series, and a data frame of one row, have the votes and prediction of the same values in the model's order."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS.astype(np.float64), columns=list("stuvwxyz"))
    smoother = Smoother(OneVsRestClassifier(LogisticRegression()).fit(frame, HOT), SIGMA, device="cpu")
    other, options = frame[list("zyxwvuts")], {"noise_seed": 0, "image_id": "a"}
    votes = smoother.votes(ROWS[3], 50, **options)
    predicted = smoother.predict(ROWS[3], RULE, noise_seed=0)
    for given in (other.iloc[3], other.iloc[3:4]):
        np.testing.assert_array_equal(smoother.votes(given, 50, **options), votes)
        assert smoother.predict(given, RULE, noise_seed=0) == predicted
    for given, words in ((other.iloc[3].drop("t"), "missing: t"), (other, "a data frame of 60 rows; expected one row")):
        with pytest.raises(MultiGuardError, match=words):
            smoother.votes(given, 50, **options)


COUNT_MODULES = """
import os, sys, numpy as np
from multiguard import Smoother, TopK
seen, here = set(), os.path.join("multiguard", "")
def profile(frame, event, _):
    name = frame.f_code.co_filename
    if event == "call" and here in name and frame.f_code.co_flags & 1:
        seen.add(name.rsplit(here, 1)[1])
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" and ".py" not in str(args[0]) else None)
smoother = Smoother(lambda rows: rows.clone(), sigma=0.25, labels=["cat", "dog", "emu"], device="cpu")
smoother.certify((np.eye(3), [["cat"], ["dog"], ["emu"]]), TopK(1, k_prime=1), draws=100, progress=False)
opened.clear()
sys.setprofile(profile)
smoother.certify((np.eye(3), [["cat"], ["dog"], ["emu"]]), TopK(1, k_prime=1), draws=100, progress=False)
sys.setprofile(None)
print(len(seen), len(opened), sorted(seen))
"""


def test_few_modules():
    """Three rows in memory are certified by few modules, none of reports, attacks, folders or several processes."""
    ran = subprocess.run([sys.executable, "-c", COUNT_MODULES], capture_output=True, text=True, check=True).stdout
    count, opened, names = ran.split(" ", 2)
    assert (int(count) <= MOST_MODULES, int(opened)) == (True, 0), ran
    assert not re.findall(
        r"'(?:report|verify|attack|run|cli)/|smooth/(?:cluster|vote|predict)|io/(?:files|lock)", names
    )


def test_predict_refusals():
    """`predict` refuses a rule, and radii, before its first draw."""
    calls = []

    def counted(rows):
        calls.append(len(rows))
        return rows[:, :LABELS].clone()

    smoother = Smoother(counted, SIGMA, labels=list("abcd"), device="cpu")
    smoother.probe([TEST[0][0]])
    calls.clear()
    for options in ({"rule": "top-k"}, {"rule": RULE, "radii": [-1.0]}):
        with pytest.raises(MultiGuardError, match=r"rule is|radii"):
            smoother.predict(TEST[0][0], **options)
    assert not calls


def test_label_order():
    """Labels in another order than the scores are warned of; the right order gives no warning."""
    fitted = OneVsRestClassifier(LogisticRegression(C=100)).fit(ROWS, HOT)
    for order, warned in (([0, 1, 2, 3], False), ([3, 2, 1, 0], True)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Smoother(fitted, 0.01, device="cpu").certify((ROWS[:20], HOT[:20][:, order]), RULE, **QUICK)
        assert [True for each in said if "hardly better than chance" in str(each.message)] == [True] * warned, said


def test_unequal_scales():
    """Columns of a table on unequal scales are warned of, by their names where there are any."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(ROWS.astype(np.float64), columns=list("stuvwxyz"))
    for data, names in ((table.assign(t=1e4 * table.t), "of t is .*, of "), (1.0 * table, None)):
        fitted = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())).fit(data, HOT)
        with pytest.warns(match=f"columns differ in scale.*{names}") if names else nullcontext():
            Smoother(fitted, SIGMA, device="cpu").certify((data, HOT), RULE, **QUICK)
    constant = np.concatenate([ROWS, np.ones((60, 1), np.float32)], axis=1)
    Smoother(lambda rows: rows[:, :LABELS].clone(), SIGMA, device="cpu").certify((constant, None), RULE, **QUICK)


def test_sigma_of_bytes():
    """A sigma in units of 0..255 is warned of where inputs are images in [0, 1], in `certify` and `predict`."""
    image = np.zeros((3, 4, 4), np.uint8)
    for run in (lambda one: one.certify((image[None], [[0]]), RULE, **QUICK), lambda one: one.predict(image, RULE)):
        with pytest.warns(match=r"sigma is 64, and pixels lie in \[0, 1\]"):
            run(Smoother(lambda x: x.mean((2, 3)), 64.0, device="cpu"))


def test_label_sequences():
    """Label names are any sequence; what has no order, or is one name, is refused with what is expected."""
    classes = MultiLabelBinarizer().fit([["a", "b"], ["c", "d"]]).classes_
    for labels in (classes, tuple("abcd"), classes.astype(object)):
        assert Smoother(network(), SIGMA, labels=labels, device="cpu").classifier.label_names == tuple("abcd")
        fitted = OneVsRestClassifier(LogisticRegression()).fit(ROWS, HOT)
        assert Smoother(fitted, SIGMA, labels=labels, device="cpu").classifier.label_names == tuple("abcd")
    for labels in ("abcd", {"a": 0, "b": 1, "c": 2, "d": 3}, set("abcd"), 4, [], [["a"], ["b"]]):
        with pytest.raises(MultiGuardError, match="in the order of the scores"):
            Smoother(network(), SIGMA, labels=labels, device="cpu")


def test_default_draws():
    """By default each input takes 1,000 draws, which their default method certifies."""
    results = Smoother(network(), SIGMA, device="cpu").certify((TEST[0][:2], TEST[1][:2]), RULE, progress=False)
    assert results.certificates.draws == (1000, 1000)
    assert results.certificates.methods == ("coupled",)


def test_without_labels():
    """Without labels, pilot draws choose those that are certified."""
    results = Smoother(network(), SIGMA, device="cpu").certify((TEST[0], None), RULE, **QUICK)
    assert "fraction of predicted labels" in repr(results)
    assert not [word for word in ("recall", "precision", "F1") if word in repr(results) + results._repr_html_()]
    assert not results.certificates.labelled
    assert {len(own) for own in results.certificates.labels} == {1, 2}, "no label that no pilot draw returned"


def test_threshold_rule():
    """The threshold rule needs the kind of scores declared, and then certifies."""
    with pytest.raises(MultiGuardError, match="output"):
        Smoother(network(), SIGMA, score_threshold=0.5, labels=list("abcd"), device="cpu")
    smoother = Smoother(network(), SIGMA, score_threshold=0.5, output="logits", device="cpu")
    results = smoother.certify(TEST, Threshold(0.5), **QUICK)
    assert results.precision(0.0) > 0


def test_units():
    """Rows have any range; images must lie in [0, 1] where the model declares its inputs to be images."""
    images = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    data = images, [[0], [1]]

    def means(x):
        return x.mean((2, 3))

    with pytest.warns(UserWarning, match="an image holds values from"):
        Smoother(means, 0.5, device="cpu").certify(data, TopK(1, k_prime=1), **QUICK)
    with pytest.raises(MultiGuardError, match=r"must lie in \[0, 1\]"):
        Smoother(means, 0.5, image_size=(4, 4), device="cpu").certify(data, TopK(1, k_prime=1), **QUICK)


def test_several_processes(monkeypatch, tmp_path):
    """One of several processes is refused: all would write into one folder."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(MultiGuardError, match="votes are made in one process, and this is one of 2"):
        Smoother(network(), sigma=SIGMA, device="cpu").certify(TEST, RULE, out=tmp_path, **QUICK)


def test_time(capsys, monkeypatch):
    """Before draws that take long, a line says about how long; quick ones say nothing."""
    smoother = Smoother(network(), SIGMA, device="cpu")
    for seconds, said in ((0.5, ""), (600.0, "2 inputs x 1500 draws take about 10 minutes\n")):
        monkeypatch.setattr("multiguard.smooth.dataset.VoteRun.seconds", lambda self, seconds=seconds: seconds)
        smoother.certify((TEST[0][:2], TEST[1][:2]), RULE, draws=1500)
        assert capsys.readouterr() == ("", said)
    monkeypatch.undo()
    smoother.certify((TEST[0][:2], TEST[1][:2]), RULE, draws=1500, progress=False)
    assert capsys.readouterr() == ("", "")
