"""What tests over several servers share: PostgreSQL and an S3 server of their own, and the keys to it."""

import pytest
from tools import cluster as many


@pytest.fixture(scope="module")
def engines():
    with many.engines() as made:
        yield made


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    for name, value in many.KEYS.items():
        monkeypatch.setenv(name, value)
