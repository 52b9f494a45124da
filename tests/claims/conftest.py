"""Every exact claim, judged once."""

import pytest

from milepost.claims.judge import judge


@pytest.fixture(scope="session")
def exact_rows():
    return {row["id"]: row for row in judge(exact=True)}
