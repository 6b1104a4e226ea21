"""Names that the examples in docstrings use: folders as the commands write them."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _report_examples(request, doctest_namespace) -> None:
    """For doctests of the report: the folders `certificates` and `attack` of a small run, their readers, and `out`."""
    if isinstance(request.node, pytest.DoctestItem) and "/report/" in str(request.node.path):
        doctest_namespace |= request.getfixturevalue("_report_run")
        doctest_namespace["out"] = request.getfixturevalue("tmp_path")


@pytest.fixture(scope="session")
def _report_run(tmp_path_factory) -> dict[str, Any]:
    from tests.evaluate.attack_cases import top_k_attacks
    from tests.report.studies import make_run

    from multiguard.results import read_attacks, read_certificates, write_attacks

    folder = tmp_path_factory.mktemp("example")
    make_run(folder, images=4, draws=40, swept={"k": [3, 5]})
    write_attacks(folder / "attack", top_k_attacks(), certificates_hash="0", provenance={})
    readers = {"read_certificates": read_certificates, "read_attacks": read_attacks}
    return {"certificates": folder / "certificates", "attack": folder / "attack", **readers}
