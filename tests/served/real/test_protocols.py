"""vLLM 0.32.0's and SGLang 0.5.23's own classes judge our requests, and the answers of our test server in their form.

`make served` installs both wheels without what they need; `tools/served/protocols.py` reads their protocol modules.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from small_server import serving
from started import ROOT, environment

from milepost.checkpoints.diagnosis.diagnose import diagnose
from milepost.served import connect
from milepost.served.servers.client import ServerError
from milepost.served.verification.verify import verify_served

pytestmark = pytest.mark.served


def judged(cases):
    """The verdict of each case."""
    done = subprocess.run(
        [environment("protocols") / "python", ROOT / "tools/served/protocols.py"],
        input=json.dumps(cases), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def _used(form, small_model, small_text, windows):
    """A server after everything was asked of it, and the subject."""
    with serving(small_model, form) as server:
        subject = connect(server.url)
        diagnose(subject, small_text, [64, 128], windows=2)
        verify_served(subject, small_text, 200)
        subject.server.ask(windows[0, :20].tolist(), bias={7: 3.0})
        with pytest.raises(ServerError, match="maximum context length"):
            subject.server.ask([3] * 600)
        return server, subject


def test_vllm(small_model, small_text, windows):
    server, subject = _used("vllm", small_model, small_text, windows)
    bodies = [body for path, _, body in server.bodies if path == "/v1/completions"]
    answered = [(body, data) for path, body, data in server.answers if path == "/v1/completions"][:60]
    kinds = {tuple(sorted(body)) for body in bodies}
    bodies = [next(body for body in bodies if tuple(sorted(body)) == kind) for kind in sorted(kinds)] + bodies[:40]
    models = next(data for path, _, data in server.answers if path == "/v1/models")
    error = {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}
    cases = [
        *(["vllm request", body] for body in bodies), *(["vllm answer", data] for _, data in answered),
        ["vllm models", models], ["vllm error", error],
    ]  # fmt: skip
    verdicts = judged(cases)
    for (kind, body), verdict in zip(cases, verdicts, strict=True):
        assert verdict["ok"] and not verdict["unknown"], (kind, body, verdict)
    for body, verdict in zip(bodies, verdicts, strict=False):
        sampled = verdict["data"]["sampling"]
        assert verdict["data"]["request"]["prompt"] == body["prompt"] and sampled["max_tokens"] == body["max_tokens"]
        assert sampled["prompt_logprobs"] == body.get("prompt_logprobs") and sampled["temperature"] == 0
    # what their class writes is read as what ours wrote
    count = 0
    for (body, data), verdict in zip(answered, verdicts[len(bodies) :], strict=False):
        if "return_tokens_as_token_ids" not in body and "prompt_logprobs" not in body:
            continue
        told = []
        for content in (data, verdict["data"]):
            subject.server.client.post = lambda path, body, content=content: content
            told.append(subject.server.request(body["prompt"], 1, 20, "prompt_logprobs" in body, {}, False))
        assert told[0] == told[1] and (told[0].steps or told[0].prompt)
        count += 1
    assert count > 10


def test_a_request_that_vllm_does_not_take_is_refused_by_its_class():
    (verdict,) = judged([["vllm request", {"model": "small", "prompt": [3], "prompt_logprobs": -3}]])
    assert not verdict["ok"] and "prompt_logprobs" in verdict["why"]


def test_sglang(small_model, small_text, windows):
    server, _ = _used("sglang", small_model, small_text, windows)
    answered = [(body, data["meta_info"]) for path, body, data in server.answers if path == "/generate"]
    bodies, metas = [body for body, _ in answered], [meta for _, meta in answered]
    kinds = {
        (tuple(sorted(body)), tuple(sorted(body["sampling_params"])), body["logprob_start_len"]) for body in bodies
    }
    assert len(kinds) >= 3
    cases = [["sglang request", body] for body in bodies]
    for body, meta in zip(bodies, metas, strict=True):
        state = {"top_logprobs_num": body["top_logprobs_num"]}
        for side in ("input", "output"):
            rows, tops = meta[f"{side}_token_logprobs"], meta.get(f"{side}_top_logprobs", [])
            state |= {f"{side}_token_logprobs_val": [r[0] for r in rows]}
            state |= {f"{side}_token_logprobs_idx": [r[1] for r in rows]}
            state |= {f"{side}_top_logprobs_val": [[t[0] for t in row] for row in tops]}
            state |= {f"{side}_top_logprobs_idx": [[t[1] for t in row] for row in tops]}
        cases.append(["sglang meta_info", state])
    verdicts = judged(cases)
    for (kind, body), verdict in zip(cases, verdicts, strict=True):
        assert verdict["ok"] and not verdict["unknown"], (kind, body, verdict)
    for body, verdict in zip(bodies, verdicts, strict=False):
        made = verdict["data"]
        assert made["is_single"] and made["return_logprob"] and made["input_ids"] == body["input_ids"]
        assert made["logprob_start_len"] == body["logprob_start_len"]
    for meta, verdict in zip(metas, verdicts[len(bodies) :], strict=True):
        assert {name: meta[name] for name in verdict["data"]} == verdict["data"]
