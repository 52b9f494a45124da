"""Every server is recognised by asking, says what it can tell, and gives the log-likelihoods of the model that it runs."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from small_server import SERVED, VOCABULARY, serving

from milepost.checkpoints.model.load import load
from milepost.served import connect
from milepost.served.servers import client as client_file
from milepost.served.servers.client import Client, ServerError, is_url

AT = [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 400]
FORMS = ("vllm", "sglang", "openai", "ollama")


@pytest.fixture(scope="module")
def own(small_folder, windows):
    """Losses of the same tokens in this process."""
    losses = load(small_folder).losses(torch.from_numpy(windows)).numpy()
    return losses[:, [p - 1 for p in AT]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client_file, "PATIENCE", (0.01, 0.02))


@pytest.mark.parametrize("form", FORMS)
def test_a_server_gives_the_losses_of_its_model(form, small_model, small_folder, small_words, windows, own):
    with serving(small_model, form, tokenizer=small_words) as server:
        subject = connect(server.url, tokenizer=small_folder)
        losses, outside = subject.losses_at(windows[:2], AT)
    assert subject.family == ("openai completions" if form == "openai" else form)
    known = ~outside
    assert np.abs(losses - own[:2])[known].max() < 1e-4
    assert (losses <= own[:2] + 1e-4).all(), "a bound is never above the loss"
    assert known.mean() > (0.6 if form == "ollama" else 0.99)
    assert subject.outside == outside.sum() and subject.asked == outside.size
    assert bool(subject.notes()) == (form == "ollama"), "what is hidden is said"


def test_what_servers_can_tell(small_model, small_folder, small_words):
    can = {}
    for form in FORMS:
        with serving(small_model, form, tokenizer=small_words) as server:
            can[form] = connect(server.url, tokenizer=small_folder).server.can
    assert [form for form in FORMS if can[form].ids] == ["vllm", "sglang", "openai"]
    assert [form for form in FORMS if can[form].prompt] == ["vllm", "sglang", "openai"]
    assert [can[form].likeliest for form in FORMS] == [20, 100, 5, 20]
    assert [can[form].served for form in FORMS] == [SERVED, SERVED, None, None]


def test_ids_are_sent_and_text_only_where_nothing_else_is_taken(small_model, small_folder, small_words, windows):
    for form, name in (("vllm", "prompt"), ("sglang", "input_ids"), ("ollama", "prompt")):
        with serving(small_model, form, tokenizer=small_words) as server:
            connect(server.url, tokenizer=small_folder).losses_at(windows[:1], [5])
            sent = server.bodies[-1][2][name]
        ids = windows[0].tolist()
        assert sent == (small_words.decode(ids[:5]) if form == "ollama" else ids[:6])


def test_a_cached_prefix_is_read_once(small_model, small_folder, small_words, windows):
    """Forced positions cost the server one pass over the text, and a token for each."""
    with serving(small_model, "openai", tokenizer=small_words) as server:
        subject = connect(server.url, tokenizer=small_folder)
        object.__setattr__(subject.server.can, "prompt", False)
        subject.losses_at(windows[:1], AT)
    told = subject.to_json()
    assert told["tokens_computed"] <= AT[-1] + len(AT) and told["tokens_sent"] == sum(AT)


def test_another_tokenizer_is_told_from_ours(small_model, small_words, small_folder):
    with (
        serving(small_model, "ollama", tokenizer=small_words) as server,
        pytest.raises(ValueError, match="another tokenizer"),
    ):
        connect(server.url, tokenizer="bytes")
    with (
        serving(small_model, "ollama", tokenizer=small_words) as server,
        pytest.raises(ValueError, match="give the model's tokenizer"),
    ):
        connect(server.url).losses_at(np.ones((1, 9), int), [4])


# -- what goes wrong -----------------------------------------------------------------------------------------------


def _error(status, words=b'{"error": {"message": "no"}}', **headers):
    return lambda number: (status, words, headers)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (_error(200, b"<html>hello</html>"), "not JSON"),
        (_error(500, b'{"error": {"message": "CUDA out of memory"}}'), "answered 500: CUDA out of memory"),
        (_error(401), "wants a key"),
        (_error(307, b"", Location="http://elsewhere.example/v1?key=s3cret"), "redirects to http://elsewhere.example/v1, which is not followed"),
        (_error(429), "answered 429"),
        (_error(200, json.dumps({"choices": []}).encode()), "without the one choice"),
        (_error(200, json.dumps({"choices": [{"prompt_logprobs": [None, {"9": {"logprob": "x"}}] + [{}] * 4}]}).encode()), "not a number"),
        (_error(200, json.dumps({"choices": [{"prompt_logprobs": [None] + [{str(n): {"logprob": 3.0} for n in range(64)}] * 5}]}).encode()), "none is above 0"),
        (_error(200, json.dumps({"choices": [{"logprobs": None}]}).encode()), "without the prompt_logprobs"),
    ],
)  # fmt: skip
def test_trouble_is_a_sentence(small_model, windows, trouble, words):
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        server.trouble = trouble
        with pytest.raises(ServerError, match=words) as raised:
            subject.losses_at(windows[:1], [5])
    assert "s3cret" not in str(raised.value)


def test_a_busy_server_is_asked_again(small_model, windows, own):
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        start = len(server.bodies)
        server.trouble = lambda number: (429, b"{}", {"Retry-After": "0"}) if number == start + 1 else None
        losses, _ = subject.losses_at(windows[:1], AT)
    assert np.abs(losses - own[:1]).max() < 1e-4


def test_a_server_that_loads_its_model_is_not_taken_for_another(pages):
    """llama.cpp answers 503 under its own paths until the model is there."""
    pages.status = 503
    with pytest.raises(ServerError, match="answered 503"):
        connect(f"http://127.0.0.1:{pages.server_address[1]}")


def test_no_server_there():
    with pytest.raises(ServerError, match=r"no server answers at http://127\.0\.0\.1:9"):
        connect("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="like http://127"):
        connect("http:///x")
    with pytest.raises(ValueError, match="does not belong into an address"):
        connect("http://me:s3cret@127.0.0.1:9")
    assert is_url("HTTPS://x") and not is_url("path/http") and not is_url(3)


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(self.server.status)
        self.end_headers()
        try:
            for _ in range(self.server.megabytes):
                self.wfile.write(b"<html>" + b" " * (1 << 20))
        except OSError:
            self.close_connection = True

    do_POST = do_GET  # noqa: N815

    def log_message(self, *words): ...


@pytest.fixture
def pages():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads, server.megabytes, server.status = True, 1, 200
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_html_is_no_inference_server(pages):
    with pytest.raises(ServerError, match="not JSON, beginning '<html>"):
        connect(f"http://127.0.0.1:{pages.server_address[1]}")


def test_an_answer_is_bounded(pages, monkeypatch):
    monkeypatch.setattr(client_file, "LARGEST", 2 << 20)
    pages.megabytes = 1000
    with pytest.raises(ServerError, match="more than 2 MB, which is not read on"):
        Client(f"http://127.0.0.1:{pages.server_address[1]}").get("/")


def test_a_key_comes_from_the_environment_and_stays_out_of_results(small_model, monkeypatch, windows):
    monkeypatch.setenv("MY_KEY", "s3cret")
    with serving(small_model, "vllm") as server:
        subject = connect(server.url, key="MY_KEY")
        subject.losses_at(windows[:1], [5])
        headers = [headers for _, headers, _ in server.bodies]
    assert all(row["Authorization"] == "Bearer s3cret" for row in headers)
    assert "s3cret" not in json.dumps(subject.to_json())
    with pytest.raises(ValueError, match="no environment variable NO_SUCH"):
        Client("http://127.0.0.1:9", key="NO_SUCH")


def test_a_certificate_that_signs_itself(small_model, tmp_path):
    """It is refused, unless its file is named."""
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with serving(small_model, "vllm") as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http", "https")
        with pytest.raises(ServerError, match="can't be trusted"):
            connect(url)
        assert connect(url, certificate=str(tmp_path / "cert.pem")).family == "vllm"
    with pytest.raises(ValueError, match="no certificates can be read"):
        connect(url, certificate=str(tmp_path / "none.pem"))


def test_a_journal_goes_on_where_a_server_ended(small_model, windows, own, tmp_path):
    journal = tmp_path / "readings.jsonl"
    with serving(small_model, "vllm") as server:
        subject = connect(server.url, journal=journal)
        subject.losses_at(windows[:2], AT)
        server.trouble = _error(500)
        with pytest.raises(ServerError):
            subject.losses_at(windows[:4], AT)
        server.trouble = None
        before = len(server.bodies)
        with journal.open("a") as file:
            file.write('["torn')
        again = connect(server.url, journal=journal)
        probes = len(server.bodies) - before
        losses, _ = again.losses_at(windows[:4], AT)
        asked = len(server.bodies) - before - probes
    assert asked == 2, "two windows were kept"
    assert np.abs(losses - own[:4]).max() < 1e-4
    assert str(windows[0, :8].tolist())[1:-1] not in journal.read_text()


def test_vocabulary_and_positions_are_checked(small_model, windows):
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        with pytest.raises(ValueError, match="positions grow, from 1 to"):
            subject.losses_at(windows[:1], [5, 5])
        with pytest.raises(ServerError, match="out of vocabulary"):
            subject.losses_at(np.full((1, 9), VOCABULARY), [5])
        with pytest.raises(ServerError, match="maximum context length is 512"):
            subject.losses_at(np.full((1, 600), 3), [599])
