"""ONNX files with tensors in other files: what is hashed is what runs."""

import hashlib
import os

import numpy as np
import pytest
import torch

from multiguard.errors import ModelError
from multiguard.models import load

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper = pytest.importorskip("onnx.helper")

LABELS = ["cat", "dog", "cow"]
A, B = (np.arange(start, start + 12, dtype=np.float32).reshape(4, 3) for start in (0, 100))
VALUE = helper.make_tensor_value_info


def external(location="w.bin", dims=(4, 3), **entries):
    """A tensor w in another file."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_of(nodes, initializers=(), **more):
    """The model with these nodes, from x with 4 columns to y with 3."""
    functions = more.pop("functions", ())
    graph = helper.make_graph(nodes, "g", [VALUE("x", 1, [1, 4])], [VALUE("y", 1, [1, 3])], initializers, **more)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def product(result="y"):
    """The node that multiplies x by w."""
    return helper.make_node("MatMul", ["x", "w"], [result])


def constant(tensor):
    """The node that returns this tensor as w."""
    return helper.make_node("Constant", [], ["w"], value=tensor)


def branches(nodes, initializers=()):
    """The model whose nodes lie in both branches of an If."""
    branch = helper.make_graph(nodes, "branch", [], [VALUE("z", 1, [1, 3])], initializers)
    switch = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return model_of([switch], [helper.make_tensor("c", 9, [], [True])])


def in_function(tensor):
    """The model whose tensor lies in a function of its own."""
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["x"], ["y"], [constant(tensor), product()], opsets)
    return model_of([helper.make_node("F", ["x"], ["y"], domain="own")], functions=[function])


def sparse(tensor):
    """The model whose tensor contains the values of a sparse one."""
    del tensor.dims[:]
    tensor.dims.append(12)
    indices = helper.make_tensor("i", 7, [12], range(12))
    stored = onnx.SparseTensorProto(values=tensor, indices=indices, dims=[4, 3])
    return model_of([product()], sparse_initializer=[stored])


PLACES = {
    "initializer": lambda tensor: model_of([product()], [tensor]),
    "constant": lambda tensor: model_of([constant(tensor), product()]),
    "branch initializer": lambda tensor: branches([product("z")], [tensor]),
    "branch constant": lambda tensor: branches([constant(tensor), product("z")]),
    "function": in_function,
    "sparse": sparse,
}


def write(folder, model, weights=A):
    """The model in a folder with its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "w.bin").write_bytes(weights.tobytes())
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def loaded(path):
    return load(f"onnx:{path}", labels=LABELS, output="logits")


def weights_of(classifier):
    """The weights that it runs with, and its hash."""
    rows = [classifier(row[None]) for row in torch.eye(4)]
    return torch.cat(rows).numpy(), classifier.weights_hash


@pytest.mark.parametrize("place", PLACES)
def test_place_of_tensor(tmp_path, monkeypatch, place):
    """A tensor anywhere in the model is read from the model's folder, and never from the current one."""
    path = write(tmp_path / "m", PLACES[place](external()))
    write(tmp_path / "here", PLACES[place](external()), B)
    monkeypatch.chdir(tmp_path / "here")
    weights, before = weights_of(loaded(path))
    assert np.array_equal(weights, A)
    (tmp_path / "m" / "w.bin").write_bytes(B.tobytes())
    weights, after = weights_of(loaded(path))
    assert np.array_equal(weights, B)
    assert before != after


def test_part_of_file(tmp_path):
    """Two tensors share a file, each with its offset and length."""
    tensors = [external(offset=0, length=48), external(offset=48, length=12, dims=(3,))]
    tensors[1].name = "b"
    model = model_of([product("z"), helper.make_node("Add", ["z", "b"], ["y"])], tensors)
    path = write(tmp_path, model, np.arange(15, dtype=np.float32))
    assert np.array_equal(weights_of(loaded(path))[0], A + np.arange(12, 15))


@pytest.mark.parametrize(
    "entries",
    [{"offset": 49}, {"offset": -1}, {"length": 49}, {"length": -1}, {"offset": "x"}, {"offset": "9" * 5000}],
)
def test_part_outside_file(tmp_path, entries):
    """A tensor that is no part of its file raises an error that names both."""
    path = write(tmp_path, model_of([product()], [external(**entries)]))
    with pytest.raises(ModelError, match=r"tensor 'w' is no part of 'w.bin'"):
        loaded(path)


@pytest.mark.soak
def test_overlapping_tensors(tmp_path):
    """Tensors that share bytes of a file cannot grow to more than a session can hold."""
    tensors = [external(dims=(1 << 24,)) for _ in range(40)]
    path = write(tmp_path, model_of([product()], tensors), np.zeros(1 << 24, np.float32))
    with pytest.raises(ModelError, match=r"2,147,483,647 bytes.*load\(session"):
        loaded(path)


@pytest.mark.parametrize("name", ["model.onnx", "w.bin"])
def test_large_file(tmp_path, name):
    """A file of more bytes than a session can hold raises an error that says how to load it."""
    path = write(tmp_path, model_of([product()], [external()]))
    os.truncate(tmp_path / name, 1 << 31)
    with pytest.raises(ModelError, match=rf"{name} cannot be read: 2,147,483,648 bytes.*load\(session"):
        loaded(path)


@pytest.mark.parametrize("name", ["model.onnx", "w.bin"])
def test_replaced_file(tmp_path, monkeypatch, name):
    """A file that is replaced before the session opens changes neither the weights that run nor their hash."""
    tensor = onnx.numpy_helper.from_array(A, "w") if name == "model.onnx" else external()
    other = onnx.numpy_helper.from_array(B, "w") if name == "model.onnx" else external()
    path = write(tmp_path / "a", model_of([product()], [tensor]))
    evil = write(tmp_path / "b", model_of([product()], [other]), B)
    expected = loaded(path).weights_hash
    session = runtime.InferenceSession

    def late(*arguments, **options):
        (path.parent / name).write_bytes((evil.parent / name).read_bytes())
        return session(*arguments, **options)

    monkeypatch.setattr(runtime, "InferenceSession", late)
    weights, found = weights_of(loaded(path))
    assert np.array_equal(weights, A)
    assert found == expected
    assert loaded(path).weights_hash != expected, "the file must have been replaced"


def field(number, payload):
    """A protobuf field without a line feed: the tag of field 1, which is one, takes two bytes that are UTF-8."""
    tag = b"%pad\xc2\x8a\x00" if number == 1 else bytes([number << 3 | 2])
    return tag + bytes([len(payload)]) + payload


def scored(name, columns):
    """The encoding of an input or output with this number of columns."""
    sizes = b"".join(field(1, bytes([8, size])) for size in (1, columns))
    return field(1, name) + field(2, field(1, bytes([8, 1]) + field(2, sizes)))


def long_field(number, payload):
    """A longer field, whose length is UTF-8 as well: 66 more than a multiple of 128."""
    return bytes([number << 3 | 2, 0xC2, 0x80 | len(payload) // 128, 0]) + payload


def polyglot():
    """A model that keeps its weights in b.bin as protobuf, and in a.bin as text; as text the protobuf is a comment."""
    location = field(13, field(1, b"location") + field(2, b"b.bin"))
    tensor = bytes([8, 4, 8, 3, 16, 1]) + field(8, b"w") + location + bytes([14 << 3, 1])
    node = field(1, b"x") + field(1, b"w") + field(2, b"y") + field(4, b"MatMul")
    parts = {1: node, 2: b"g", 5: tensor, 11: scored(b"x", 4), 12: scored(b"y", 3)}
    graph = b"".join(field(number, part) for number, part in parts.items())
    graph += field(10, b"d" * ((64 - len(graph)) % 128))
    text = b"\n" + str(model_of([product()], [external("a.bin")])).encode()
    text += b" " * ((66 - len(text)) % 128)
    return b"#$" + bytes([8, 8]) + field(8, bytes([16, 17])) + long_field(7, graph) + long_field(15, text)


def test_runtime_format(tmp_path):
    """A model whose first bytes look like the runtime's own format is read as ONNX."""
    model = model_of([product()], [onnx.numpy_helper.from_array(A, "w")])
    model.producer_name = "ORTM"
    path = write(tmp_path, model)
    assert path.read_bytes()[4:8] == b"ORTM"
    assert np.array_equal(weights_of(loaded(path))[0], A)


def test_hash_of_one_file(tmp_path):
    """The hash of a model in one file is the sha256 of that file."""
    path = write(tmp_path, model_of([product()], [onnx.numpy_helper.from_array(A, "w")]))
    assert loaded(path).weights_hash == hashlib.sha256(path.read_bytes()).hexdigest()
