"""The explorer's own server, on a free port of this machine."""

import threading

import pytest

from milepost.explore.server import opened


@pytest.fixture(scope="session")
def served():
    """The address of a running server."""
    server, said = opened(0)
    assert not said
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.address
    server.shutdown()
    server.server_close()
