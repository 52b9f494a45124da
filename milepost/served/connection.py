"""connect: the model behind a server, ready to be measured.

subject = connect("http://127.0.0.1:8000", tokenizer="path/to/model")
milepost.checkpoints.diagnose(subject, "book.txt", [1024, 4096, 16384])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from milepost.checkpoints.diagnosis.diagnose import WINDOWS, Diagnosis
from milepost.checkpoints.diagnosis.plan import Tell
from milepost.checkpoints.model.tokenizers import find_tokenizer
from milepost.served.diagnosis import diagnose_served
from milepost.served.servers import find_server
from milepost.served.servers.client import Client
from milepost.served.servers.words import Words
from milepost.served.subject import Served


class Connected(Served):
    """What `milepost.checkpoints.diagnose` takes."""

    def diagnose(
        self, text: str | Path, lengths: Sequence[int], *, windows: int = WINDOWS,
        tell: Tell = lambda what, share: None,
    ) -> Diagnosis:  # fmt: skip
        """See `milepost.checkpoints.diagnose`."""
        return diagnose_served(self, text, lengths, windows=windows, tell=tell)


def connect(
    url: str, *, tokenizer: str | Path | None = None, model: str | None = None, key: str | None = None,
    certificate: str | None = None, trained_length: int | None = None, timeout: float = 600.0,
    journal: Path | None = None, setting: str = "",
) -> Connected:  # fmt: skip
    """The model at an address, with what its server can tell.

    ``tokenizer`` is the model's own: a tokenizer.json, a folder, a name on the Hub, or ``bytes``. ``model`` is the name
    that it is served under, where there are several. ``key`` names the environment variable that holds a key.
    ``certificate`` is a file of certificates to trust. What is read is kept in the file ``journal``, under the name
    ``setting``. Raises ServerError, a ValueError, in one sentence.
    """
    made = None if tokenizer is None else find_tokenizer(tokenizer)
    client = Client(url, key=key, certificate=certificate, timeout=timeout)
    server = find_server(client, model, None if made is None else Words(made))
    return Connected(server, made, trained_length, journal, setting)
