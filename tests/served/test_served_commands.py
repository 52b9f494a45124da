"""The commands, given addresses: exit codes, files, and nothing lost when a server ends during a run."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from small_server import TRAINED, build, serving
from typer.testing import CliRunner

from milepost.cli import app
from milepost.served.servers import client as client_file

PROBES = 12
"""Small requests that find out what a server can tell, at most."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client_file, "PATIENCE", (0.01,))


def _run(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output[-2000:]
    return done


def test_diagnose_writes_a_report(small_model, small_text, tmp_path):
    out = tmp_path / "out"
    with serving(small_model, "sglang") as server:
        _run("diagnose", server.url, "--text", small_text, "--lengths", "64,128", "--out", out)
    data = json.loads((out / "diagnosis.json").read_text())
    assert data["model"] == server.url and (out / "report.html").exists() and (out / "report.md").exists()
    assert not list(tmp_path.glob("*.jsonl")), "the journal is gone when the report is there"


@pytest.mark.slow
def test_a_server_that_ends_loses_nothing(small_model, small_text, tmp_path):
    out = tmp_path / "out"
    words = ("diagnose", "--text", small_text, "--lengths", "64,128", "--out", out)
    with serving(small_model, "vllm") as server:
        server.trouble = lambda number: (500, b"{}", {}) if number > 14 else None
        _run(*words, server.url, code=2)
        journal = tmp_path / "out.readings.jsonl"
        kept = len(journal.read_text().splitlines())
        assert kept > 3 and not out.exists()
        done = _run(*words, server.url, code=2)
        assert "--resume" in done.output
        server.trouble, before = None, len(server.bodies)
        _run(*words, server.url, "--resume")
        resumed = len(server.bodies) - before
    assert (out / "diagnosis.json").exists() and not journal.exists()
    with serving(small_model, "vllm") as server:
        _run("diagnose", server.url, "--text", small_text, "--lengths", "64,128")
        whole = len(server.bodies)
    assert resumed == whole - kept


@pytest.mark.slow
def test_verify_names_what_is_served(small_model, small_folder, small_text, tmp_path):
    out = tmp_path / "out"
    words = ("--against", small_folder, "--text", small_text, "--length", "448")
    with serving(small_model, "vllm", "no temperature") as server:
        done = _run("verify", server.url, *words, "--out", out, code=1)
    assert "without the temperature" in done.output
    data = json.loads((out / "verification.json").read_text())
    assert data["same"] == ["YaRN, factor 4, without the temperature"] and data["failed"] == ["rotation"]
    with serving(small_model, "vllm") as server:
        data = json.loads(_run("verify", server.url, *words, "--json").stdout)
    assert data["ok"] and data["same"] == ["as the config says"]


@pytest.mark.slow
def test_compare_gates_an_upgrade(small_model, small_folder, small_text):
    words = ("--text", small_text, "--length", "448")
    with serving(small_model, "vllm") as old, serving(small_model, "sglang") as new:
        before = len(old.bodies)
        done = _run("compare", old.url, new.url, *words, "--json")
        data = json.loads(done.stdout)
        assert f"{old.url}: at most 6 requests, in which vllm computes {6 * 449} tokens" in done.stderr
        assert len(old.bodies) - before <= 6 + PROBES and data["servers"][0]["tokens_sent"] <= 6 * 449 + 100
        assert data["ok"] and abs(data["difference"]["value"]) < 1e-4 and data["parts_from"] is None
        data = json.loads(_run("compare", old.url, small_folder, *words, "--json").stdout)
        assert data["ok"] and max(row["apart"] for row in data["rows"]) < 1e-4
    with serving(small_model, "vllm") as old, serving(small_model, "vllm", "base 10000") as new:
        data = json.loads(_run("compare", old.url, new.url, *words, "--json", code=1).stdout)
        assert not data["ok"] and data["parts_from"] is not None
        worst = max(data["rows"], key=lambda row: row["value"])
        assert worst["parts"] and worst["low"] > data["threshold"]
        _run("compare", old.url, new.url, *words, "--threshold", "50")


@pytest.mark.slow
def test_recommend_of_running_servers(small_model, small_text, tmp_path):
    """The setting that the text was written with wins over none, whichever comes first."""
    plain = build({"rope_type": "default", "rope_theta": 50000.0})
    plain.load_state_dict(small_model.state_dict())
    words = ("--target-length", "448", "--text", small_text, "--trained-length", TRAINED, "--json")
    with serving(plain, "vllm") as none, serving(small_model, "vllm") as yarn:
        data = json.loads(_run("recommend", none.url, yarn.url, *words).stdout)
        assert data["best"] == yarn.url and data["rows"][0]["gain"]["low"] > 0
        data = json.loads(_run("recommend", yarn.url, none.url, *words, "--out", tmp_path / "out").stdout)
        assert data["best"] == yarn.url and data["rows"][0]["gain"]["value"] == 0
    assert (tmp_path / "out" / "recommendation.json").exists()


FORWARD = """
import sys, urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, log, plain, yarn, *flags = sys.argv[1:]
open(log, "a").write(" ".join(flags) + "\\n")
target = yarn if "yarn" in flags else plain

class Forward(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        try:
            answer = urllib.request.urlopen(urllib.request.Request(target + self.path, data=body))
        except urllib.error.HTTPError as error:
            answer = error
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    do_POST = do_GET
    def log_message(self, *words): ...

ThreadingHTTPServer(("127.0.0.1", int(port)), Forward).serve_forever()
"""
"""A server that is started with flags: it passes requests on to the model that turns so."""


@pytest.mark.slow
def test_recommend_starts_servers_and_ends_them(small_model, small_folder, small_text, tmp_path):
    """A process for each setting: it is given the flags of export, waited for, and ended."""
    log, file, folder = tmp_path / "log.txt", tmp_path / "serve.py", tmp_path / "plain"
    file.write_text(FORWARD)
    config = json.loads((small_folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 50000.0}
    config["max_position_embeddings"] = TRAINED
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    plain = build(config["rope_parameters"])
    plain.load_state_dict(small_model.state_dict())
    words = ("recommend", folder, "--target-length", "448", "--text", small_text, "--windows", "3", "--json")
    with serving(plain, "vllm") as none, serving(small_model, "vllm") as yarn:
        command = f"{sys.executable} {file} {{port}} {log} {none.url} {yarn.url} {{flags}}"
        data = json.loads(_run(*words, "--command", command).stdout)
        assert _run(*words, "--command", "no-such-program {port} {flags}", code=2)
        ended = _run(*words, "--command", f"{sys.executable} -c 'exit(3)' {{port}} {{flags}}", code=2)
    assert data["best"] == "yarn"
    assert "ended with code 3 before it answered" in ended.output
    flags = log.read_text().splitlines()
    assert len(flags) == len(data["rows"]) and any("--rope-scaling yarn" in line for line in flags)
    served = "-c 448 --override-kv llama.context_length=int:448 "
    assert flags[0] == f"{served}--rope-scaling none --rope-freq-base 50000", (
        "no program, no model, the target's length"
    )
    assert all(line.startswith(served) for line in flags)
    assert data["rows"][-1]["setting"] == "the model as it is" or data["rows"][0]["gain"]["value"] > 0


def test_bad_words_are_sentences(small_model, small_text, tmp_path):
    with serving(small_model, "vllm") as server:
        for words, sentence in (
            (("verify", server.url), "give --text"),
            (("verify", "path/to/model", "--against", "x"), "are for the address of a server"),
            (("compare", tmp_path, server.url, "--text", small_text), "the address of a server first"),
            (("compare", server.url, server.url), "give --text"),
            (("compare", server.url, server.url, "--text", small_text, "--windows", "1"), "--windows is at least 2"),
            (("diagnose", server.url, "--text", small_text, "--lengths", "64", "--resume"), "--resume goes on with"),
            (("diagnose", server.url, "--text", small_text, "--lengths", "64", "--served-model", "other"), "and not other"),
            (("recommend", server.url, "--target-length", "400", "--text", small_text, "--trained-length", "64"), "at least two settings"),
            (("recommend", "a", "b", "--target-length", "400", "--text", small_text), "takes one model"),
            (("recommend", tmp_path, "--target-length", "400", "--text", small_text, "--command", "serve"), ""),
            (("diagnose", "http://127.0.0.1:9", "--text", small_text, "--lengths", "64"), "no server answers"),
        ):  # fmt: skip
            assert sentence in " ".join(_run(*words, code=2).output.split())


def test_a_text_in_words_and_its_first_token(small_model, small_folder, small_words, tmp_path):
    text = tmp_path / "text.txt"
    ids = np.random.default_rng(0).integers(3, 64, 1200)
    text.write_text(small_words.decode(ids.tolist()))
    with serving(small_model, "vllm") as server:
        words = ("diagnose", server.url, "--text", text, "--lengths", "32,64", "--windows", "2", "--json")
        assert "has no tokenizer" in _run(*words, code=2).output
        data = json.loads(_run(*words, "--tokenizer", small_folder).stdout)
    assert data["protocol"]["text"]["tokens"] == 1200
