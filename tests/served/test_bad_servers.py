"""Every way in which a server can go wrong, through the commands: a sentence, an exit code, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from small_server import VOCABULARY, SmallModel, serving
from typer.testing import CliRunner

from milepost.cli import app
from milepost.served import connect
from milepost.served.servers import client as client_file
from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.server import Abilities
from milepost.served.subject import growing


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client_file, "PATIENCE", (0.01, 0.02))


def _run(*words, code=2):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output[-2000:]
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def _diagnose(url, text, *more, code=2):
    return _run("diagnose", url, "--text", text, "--lengths", "64,128", *more, code=code)


class Bad(BaseHTTPRequestHandler):
    """A server that gives the same bytes to everything."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with contextlib.suppress(OSError):
            self.server.behave(self)
        self.close_connection = True

    do_POST = do_GET  # noqa: N815

    def log_message(self, *words): ...


@contextlib.contextmanager
def bad(behave):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bad)
    server.daemon_threads, server.behave, server.asked = True, behave, 0
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def says(status, content=b"{}", **headers):
    def behave(handler):
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return behave


def _break_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"default_generation')


def _say_nothing(handler):
    handler.connection.close()


FIRST_ANSWERS = {
    "html": (says(200, b"<!doctype html><html>Welcome</html>"), "not JSON, beginning '<!doctype html>"),
    "redirect": (says(302, b"", Location="http://127.0.0.1:9/x?key=s3cret"), "redirects to http://127.0.0.1:9/x, which is not followed"),
    "permanent redirect": (says(308, b"", Location="https://elsewhere.example/"), "redirects to https://elsewhere.example/, which is not"),
    "no key": (says(401), "it wants a key: put it into MILEPOST_KEY"),
    "forbidden": (says(403), "it wants a key"),
    "rate limit": (says(429, b'{"error": "slow down"}', Retry_After="0"), "answered 429: slow down"),
    "nothing there": (says(404), "is none of llama.cpp, sglang"),
    "numbers": (says(200, b"3"), "is none of llama.cpp, sglang"),
    "deep": (says(200, b"[" * 100_000), "not JSON"),
    "breaks off": (_break_off, "it broke off after 20 of 1000 bytes"),
    "silence": (_say_nothing, "no server answers at"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_ANSWERS)
def test_no_inference_server(name, small_text):
    behave, words = FIRST_ANSWERS[name]
    with bad(behave) as (server, url):
        output = _diagnose(url, small_text)
    assert words in output and "s3cret" not in output
    assert server.asked <= 40


def test_no_server(small_text):
    assert "no server answers at http://127.0.0.1:9: Connection refused" in _diagnose("http://127.0.0.1:9", small_text)


def test_a_wrong_key_is_refused_and_not_repeated(small_text, monkeypatch):
    monkeypatch.setenv("MILEPOST_KEY", "s3cret")
    with bad(says(401, b'{"error": "bad key s3cret"}')) as (_, url):
        output = _diagnose(url, small_text)
    assert "the key was refused" in output and "s3cret" not in output
    assert "no environment variable NO_SUCH_KEY" in _diagnose(url, small_text, "--key-from", "NO_SUCH_KEY")


def test_gigabytes_are_not_read(small_text):
    """A gigabyte is on offer: what is read is bounded, and soon over."""
    sent = []

    def flood(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1024):
            handler.wfile.write(b" " * (1 << 20))
            sent.append(1)

    with bad(flood) as (_, url):
        assert "more than 64 MB, which is not read on" in _diagnose(url, small_text)
    assert len(sent) < 300


def test_an_answer_that_drips_is_ended():
    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(400):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.02)

    with bad(drip) as (_, url), pytest.raises(ServerError, match=r"did not answer whole within 0\.3 seconds"):
        Client(url, timeout=0.3).get("/")


ANSWERS = {
    "missing": ({"choices": [{"index": 0, "text": ""}]}, "without the prompt_logprobs"),
    "NaN": ({"choices": [{"prompt_logprobs": "nan"}]}, "not a number"),
    "minus infinity": ({"choices": [{"prompt_logprobs": "-inf"}]}, "minus infinity"),
    "positive": ({"choices": [{"prompt_logprobs": "3.0"}]}, "none is above 0"),
    "fewer": ({"choices": [{"prompt_logprobs": [None]}]}, "without the prompt_logprobs"),
    "two": ({"choices": [{}, {}]}, "without the one choice"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_log_likelihoods_that_are_none(name, small_model, small_text):
    data, words = ANSWERS[name]
    with serving(small_model, "vllm") as server:
        start = 8  # after what is asked to know the server

        def trouble(number):
            body = server.bodies[-1][2]
            if number < start or "prompt_logprobs" not in body:
                return None
            made = json.loads(json.dumps(data))
            value = made["choices"][0].get("prompt_logprobs")
            if isinstance(value, str):
                row = {str(n): {"logprob": float(value)} for n in range(VOCABULARY)}
                made["choices"][0]["prompt_logprobs"] = [None] + [row] * (len(body["prompt"]) - 1)
            return 200, json.dumps(made).encode(), {}

        server.trouble = trouble
        assert words in _diagnose(server.url, small_text)


def test_nan_among_the_likeliest(small_model, small_words, small_folder, windows):
    with serving(small_model, "ollama", tokenizer=small_words) as server:
        subject = connect(server.url, tokenizer=small_folder)
        row = {"token": "w7", "logprob": -1.0, "top_logprobs": [{"token": "w8", "logprob": float("nan")}]}
        answer = {"logprobs": [row], "prompt_eval_count": 5}
        server.trouble = lambda number: (200, json.dumps(answer).encode(), {})
        with pytest.raises(ServerError, match="not a number"):
            subject.losses_at(windows[:1], [5])


def test_another_vocabulary_is_found(small_model, small_folder, small_text, tmp_path):
    from small_server import CONFIG, YARN
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(**{**CONFIG, "vocab_size": 48}, rope_parameters=YARN)).save_pretrained(tmp_path / "o")
    with serving(small_model, "vllm") as server:
        for words in (("compare", server.url, tmp_path / "o"), ("verify", server.url, "--against", tmp_path / "o")):
            output = _run(*words, "--text", small_text, "--length", "64")
            assert "o knows 48: it has another vocabulary than the model at" in output


def test_an_error_does_not_repeat_the_prompt(small_model, small_words, small_folder, tmp_path):
    text = tmp_path / "secret.txt"
    text.write_text(small_words.decode(np.random.default_rng(0).integers(3, 64, 900).tolist()))
    with serving(small_model, "ollama", tokenizer=small_words) as server:

        def trouble(number):
            body = server.bodies[-1][2]
            if len(str(body.get("prompt", ""))) < 100:
                return None
            return (
                422,
                json.dumps({"detail": [{"msg": f"bad: {body['prompt']}", "input": body["prompt"]}]}).encode(),
                {},
            )

        server.trouble = trouble
        output = _diagnose(server.url, text, "--tokenizer", small_folder)
    assert "answered 422: bad: (the prompt)" in output
    assert " ".join(text.read_text().split()[:4]) not in output


@pytest.mark.slow
def test_a_server_that_really_ends_loses_nothing(small_model, small_folder, small_text, tmp_path):
    """Its socket is closed in the middle of a run; another one is started, and --resume goes on. Each command."""
    commands = {
        "diagnose": ("--lengths", "64,128", "--windows", "4"),
        "verify": ("--length", "448", "--against", small_folder),
        "compare": (small_folder, "--length", "448"),
    }
    for name, more in commands.items():
        out = tmp_path / name
        model = SmallModel(small_model)
        with serving(model, "vllm") as server:
            ends = {"diagnose": 12, "verify": 21, "compare": 9}[name]

            def end(number, server=server, ends=ends):
                if number >= ends:
                    server.socket.close()
                    raise ConnectionAbortedError
                return None

            server.trouble = end
            server.handle_error = lambda *words: None
            output = _run(name, server.url, *more, "--text", small_text, "--out", out)
            assert "no server answers" in output and "go on with --resume" in output
        kept = (tmp_path / f"{name}.readings.jsonl").read_text().splitlines()
        assert kept and not out.exists()
        with serving(model, "vllm") as server:
            _run(name, server.url, *more, "--text", small_text, "--out", out, "--resume", code=0)
            resumed = len(server.bodies)
        with serving(SmallModel(small_model), "vllm") as server:
            _run(name, server.url, *more, "--text", small_text, code=0)
            assert resumed == len(server.bodies) - len(kept)
        assert (out / "report.html").exists() and not (tmp_path / f"{name}.readings.jsonl").exists()


def test_a_server_that_comes_back_is_waited_for(small_model, windows):
    """A connection that breaks is tried again, where the server had answered before."""
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        start = len(server.bodies)

        def once(number):
            if number == start + 1:
                raise ConnectionAbortedError
            return None

        server.trouble, server.handle_error = once, lambda *words: None
        losses, _ = subject.losses_at(windows[:1], [5])
    assert np.isfinite(losses).all() and len(server.bodies) == start + 2


def test_texts_that_a_server_does_not_bear_side_by_side_are_read_one_by_one(small_model, windows):
    with serving(small_model, "vllm") as server:
        expected, _ = connect(server.url).losses_at(windows[:6], [5, 60])
        subject = connect(server.url)
        start = len(server.bodies)
        server.trouble = lambda number: (500, b'{"error": "no room"}', {}) if number == start + 3 else None
        losses, _ = subject.losses_at(windows[:6], [5, 60])
        assert subject.alone and np.abs(losses - expected).max() < 1e-6
        server.trouble = lambda number: (500, b'{"error": "no room"}', {})
        with pytest.raises(ServerError, match="answered 500: no room"):
            subject.losses_at(windows[:6], [7, 61])


def test_side_by_side_where_slots_share_what_is_served():
    can = Abilities(ids=True, prompt=False, likeliest=1, served=512, slots=4, shared=True)
    assert [can.room(n) for n in (1, 2, 4)] == [511, 255, 127]
    assert replace(can, shared=False).room(4) == 512 and replace(can, served=None).room(4) is None


def test_lengths_grow(small_model, windows, monkeypatch):
    """A prompt's log-likelihoods are asked for in lengths that grow, so that the first that is too long is not the
    longest."""
    assert growing(1025) == [] and growing(4097) == [1024] and growing(16385) == [1024, 4096]
    assert growing(16385, 4096) == [] and growing(16385, 1024) == [4096]
    monkeypatch.setattr("milepost.served.subject.SAFE", 16)
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        start = len(server.bodies)
        subject.losses_at(windows[:2], [300])
        first = [len(body["prompt"]) for _, _, body in server.bodies[start:]]
        subject.losses_at(windows[2:3], [300])
    assert first == [16, 64, 301, 301] and len(server.bodies) == start + 5
