"""The names that examples in docstrings may use: folders as the commands write them."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _example_names(request, doctest_namespace) -> None:
    """Votes, evaluate and results have a `run`, its `folder` and `vote`; the report has `certificates` and `attack`."""
    if isinstance(request.node, pytest.DoctestItem):
        names = dict.fromkeys(("votes", "evaluate", "results"), "_votes_names") | {"report": "_report_names"}
        for room in names.keys() & set(request.node.path.parts):
            doctest_namespace |= request.getfixturevalue(names[room])
        doctest_namespace["out"] = request.getfixturevalue("tmp_path")


@pytest.fixture(scope="session")
def _votes_names(tmp_path_factory) -> dict[str, Any]:
    from tests.votes.vote_runs import provenance, row, write

    run, folder = provenance(sigma=0.5), tmp_path_factory.mktemp("example") / "votes"
    write(folder, run)
    return {"run": run, "folder": folder, "vote": row}


@pytest.fixture(scope="session")
def _report_names(tmp_path_factory) -> dict[str, Any]:
    from tests.evaluate.attack_cases import top_k_attacks, write_attacks
    from tests.report.studies import make_run

    from multiguard.evaluate import read_attacks, read_certificates

    folder = tmp_path_factory.mktemp("example")
    make_run(folder, images=4, draws=40, swept={"k": [3, 5]})
    write_attacks(folder / "attack", top_k_attacks(), certificates_hash="0")
    readers = {"read_certificates": read_certificates, "read_attacks": read_attacks}
    return {"certificates": folder / "certificates", "attack": folder / "attack", **readers}
