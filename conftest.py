"""Names that the examples in docstrings of `multiguard.votes` use: a run of five images, and a folder of its votes."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _names_in_examples(doctest_namespace, tmp_path_factory):
    from tests.votes.vote_runs import provenance, row, write

    run, folder = provenance(sigma=0.5), tmp_path_factory.mktemp("example") / "votes"
    write(folder, run)
    doctest_namespace.update(run=run, folder=folder, vote=row)
