"""llama.cpp's own server, with a small model that was written as GGUF in float32."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import torch
import transformers
from gguf_llama import write_llama
from small_server import CONFIG as SHAPE
from small_server import SERVED, VOCABULARY, build, write_text
from started import ROOT, environment
from typer.testing import CliRunner

from milepost.checkpoints.diagnosis.diagnose import diagnose
from milepost.checkpoints.model.load import load
from milepost.cli import app
from milepost.served.diagnosis import make_plan
from milepost.served.verification.candidates import CONFIG
from milepost.served.verification.verify import verify_served

pytestmark = pytest.mark.served
AT = [1, 2, 127, 128, 129, 255, 256, 257, 400, 510]
PLAIN = {"rope_type": "default", "rope_theta": 50000.0}
LENGTH = 448
EXACT = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")
"""Keys and values in float32, and attention without the flash kernel, which rounds to float16."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model without scaling, trained for 512 tokens as far as its config says, as a folder and as GGUF; its text."""
    torch.set_num_threads(1)
    model, folder = build(PLAIN), tmp_path_factory.mktemp("plain")
    model.save_pretrained(folder / "model")
    write_llama(model, folder / "model.gguf")
    np.save(folder / "text.npy", write_text(model, 4, SERVED).numpy())
    return folder


def test_losses_equal_those_of_the_same_weights_here(plain, llama_cpp):
    windows = np.load(plain / "text.npy")
    here = load(plain / "model").losses(torch.from_numpy(windows)).numpy()[:, [p - 1 for p in AT]]
    with llama_cpp(plain / "model.gguf", "-c", 1024, *EXACT) as subject:
        losses, outside = subject.losses_at(windows, AT)
        told = subject.to_json()
    assert subject.family == "llama.cpp" and subject.vocabulary == VOCABULARY and not outside.any()
    assert np.abs(losses - here).max() < 2e-3
    assert told["tokens_computed"] <= len(windows) * (AT[-1] + len(AT)), "each window is read once"


FLAGS = {
    CONFIG: (),
    "YaRN, factor 4": ("--rope-scaling", "yarn", "--rope-scale", 4, "--yarn-orig-ctx", SERVED),
    "linear, factor 2": ("--rope-scaling", "linear", "--rope-scale", 2),
    "base 10000": ("--rope-freq-base", 10000),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_told_apart(name, plain, llama_cpp):
    with llama_cpp(plain / "model.gguf", "-c", 1024, *FLAGS[name]) as subject:
        done = verify_served(subject, plain / "text.npy", LENGTH, against=load(plain / "model"))
    assert done.same == (name,), [check.sentence for check in done.checks]
    assert done.failed == (() if name == CONFIG else ("rotation",)), [check.sentence for check in done.checks]


def test_a_text_longer_than_the_context_is_refused(plain, llama_cpp):
    with llama_cpp(plain / "model.gguf", "-c", 256) as subject:
        done = verify_served(subject, plain / "text.npy", 200)
        longer = verify_served(subject, plain / "text.npy", LENGTH)
    checks = {check.name: check for check in done.checks}
    assert (
        checks["too long a text"].verdict == "PASS"
        and "refused (400), as 256 are served" in checks["too long a text"].sentence
    )
    assert done.ok, [check.sentence for check in done.checks]
    assert longer.failed == ("served length",)
    sentence = next(check.sentence for check in longer.checks if check.name == "served length")
    assert "it serves 256 tokens, texts of 449 were asked for, and it refuses them (400)" in sentence


def test_sixteen_thousand_tokens_cost_at_most_three_passes(llama_cpp, tmp_path):
    """By the server's own count, which is asked for at its end."""
    longest = 16384
    model = _long_model(longest)
    write_llama(model, tmp_path / "model.gguf")
    np.save(tmp_path / "text.npy", np.random.default_rng(0).integers(3, VOCABULARY, (6, longest + 1)))
    lengths = [1024, 4096, longest]
    with llama_cpp(tmp_path / "model.gguf", "-c", longest + 256, how={"trained_length": 2048}) as subject:
        plan = make_plan(subject, lengths, 6)
        before = _count(subject)
        found = diagnose(subject, tmp_path / "text.npy", lengths, windows=6)
        counted = _count(subject) - before
    spent = found.protocol["spent"]
    assert spent["tokens_computed"] == counted <= plan.tokens
    assert counted <= 3 * 6 * sum(lengths), counted / (6 * sum(lengths))
    print(f"{counted} tokens computed, {counted / (6 * sum(lengths)):.2f} passes, {spent['requests']} requests")


def _long_model(longest):

    torch.manual_seed(0)
    shape = {
        **SHAPE,
        "max_position_embeddings": 2 * longest,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, rope_parameters=PLAIN)).eval()


def _count(subject):
    """llama.cpp's own count of tokens of prompts that it computed."""
    lines = subject.server.client.get_words("/metrics").splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("llamacpp:prompt_tokens_total "))))


def test_recommend_starts_servers_past_the_trained_length(plain, tmp_path):
    """`-c` alone serves what the file was trained for; the flags that are tried serve the target."""
    program = f"{environment('llama') / 'python'} {ROOT / 'tools/served/llama_cpp.py'} -t 1"
    model = build(PLAIN, max_position_embeddings=2 * SERVED)
    np.save(tmp_path / "text.npy", write_text(model, 4, 2 * SERVED + 1).numpy())
    page = (ROOT / "docs" / "served.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("milepost recommend model.gguf"))
    for word, here in (("llama-server", program), ("model.gguf", plain / "model.gguf"), ("16k", 2 * SERVED)):
        line = line.replace(word, str(here))
    words = [*shlex.split(line.replace("book.txt", str(tmp_path / "text.npy")))[1:], "--windows", "2", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output[-2000:]
    data = json.loads(done.stdout)
    assert data["best"] == "the model as it is", "the text was written without a scaling, in texts of that length"
    assert {row["setting"] for row in data["rows"]} == {data["best"], "base", "linear", "ntk", "yarn"}
    served = [server["can"]["served"] for server in data["provenance"]["protocol"]["servers"]]
    assert served == [2 * SERVED] * len(data["rows"])


def test_a_longer_context_alone_is_cut_by_the_server(plain, llama_cpp):
    """Why --override-kv is written: -c says 1024, and 512 are served; with it, all of them."""
    longer = ("--override-kv", f"llama.context_length=int:{2 * SERVED}")
    for more, served in (((), SERVED), (longer, 2 * SERVED)):
        with llama_cpp(plain / "model.gguf", "-c", 2 * SERVED, *more) as subject:
            assert subject.server.can.served == served


def test_four_slots_that_share_their_room(plain, llama_cpp):
    """As llama-server starts by default: texts that do not fit together are read one by one, and none is broken off."""
    with llama_cpp(plain / "model.gguf", "-c", SERVED, "-np", 4, "--kv-unified") as subject:
        assert (subject.server.can.slots, subject.server.can.served) == (4, SERVED)
        found = diagnose(subject, plain / "text.npy", [64, 256, 500], windows=4)
        done = verify_served(subject, plain / "text.npy", LENGTH, against=load(plain / "model"))
        assert not subject.alone
    assert found.protocol["spent"]["tokens_computed"] <= found.protocol["plan"]["tokens"]
    checks = {check.name: check for check in done.checks}
    assert done.ok and done.same == (CONFIG,), [check.sentence for check in done.checks]
    assert checks["alone and in a batch"].verdict == "PASS"
