"""The swap: weights moved to another architecture, held to the models' own code and to milepost's reference; and
faults planted in either are seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from migrate_models import OLD, family
from safetensors.torch import load_file
from tiny_models import transformers
from transformers.models.falcon.modeling_falcon import build_alibi_tensor

from milepost.checkpoints.layout_conversion.proof import ProofError
from milepost.checkpoints.migration import swap as migrate_swap
from milepost.checkpoints.migration.fade import fading
from milepost.checkpoints.migration.longer_table import METHODS, longer, rows_kept
from milepost.checkpoints.migration.proof import prove, unused
from milepost.checkpoints.migration.reference import FalconALiBi, flat_from, logits
from milepost.checkpoints.migration.source import open_origin
from milepost.checkpoints.migration.swap import prove_swap, swap
from milepost.checkpoints.migration.targets import to_neox
from milepost.encodings.alibi import slopes

TABLES = ("gpt2", "opt", "learned", "sinusoidal")
IDS = torch.arange(3, 3 + 40)[None] * 7 % 64


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("families")
    return {name: family(name, place / name) for name in (*TABLES, "llama", "qwen2")}


def run(model: Any, ids: torch.Tensor = IDS[:, :OLD], **more: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids, **more).logits


@pytest.mark.parametrize("to", ["rope", "alibi", "nope"])
@pytest.mark.parametrize("name", TABLES)
def test_both_proofs_pass_and_the_old_table_is_gone(models, name, to):
    origin = open_origin(models[name], to, "cpu")
    found = prove_swap(origin, swap(origin, to, OLD), to, OLD)
    assert [(one.name, one.verdict) for one in found] == [
        ("positions off", "PASS"),
        ("positions on", "PASS"),
        ("old table unused", "PASS"),
    ]
    assert all(one.control > 100 * one.allowed for one in found[:2])


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_a_llama_without_rotation_is_a_smollm3(models, name):
    origin = open_origin(models[name], "nope", "cpu")
    made = swap(origin, "nope", OLD).model
    assert [one.verdict for one in prove_swap(origin, swap(origin, "nope", OLD), "nope", OLD)] == ["PASS", "PASS"]
    assert not any(layer.self_attn.use_rope for layer in made.model.layers)
    zero = torch.zeros(1, OLD, dtype=torch.long)
    own = run(origin.model, position_ids=zero, attention_mask=torch.ones(1, OLD, dtype=torch.long))
    assert torch.allclose(run(made), own, atol=1e-4) and not torch.allclose(run(made), run(origin.model), atol=1e-1)


@pytest.mark.parametrize("more", [{"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_weights": False}, {"tie_word_embeddings": False}, {"n_inner": 48},
                                  {"activation_function": "relu"}, {"layer_norm_epsilon": 0.1}], ids=str)  # fmt: skip
def test_gpt2_s_variants_are_held_exactly(tmp_path, more):
    folder = family("gpt2", tmp_path / "model", **more)
    for to in ("rope", "alibi"):
        origin = open_origin(folder, to, "cpu")
        assert [one.verdict for one in prove(origin, swap(origin, to, OLD).model, to)] == ["PASS", "PASS"]
        assert bool(swap(origin, to, OLD).model.config.tie_word_embeddings) == more.get("tie_word_embeddings", True)


@pytest.mark.parametrize("more", [{"enable_bias": False}, {"layer_norm_elementwise_affine": False}], ids=str)
def test_opt_s_variants_are_held_exactly(tmp_path, more):
    origin = open_origin(family("opt", tmp_path / "model", **more), "rope", "cpu")
    assert [one.verdict for one in prove(origin, swap(origin, "rope", OLD).model, "rope")] == ["PASS", "PASS"]


def _keys_for_values(model: Any) -> None:
    fused = model.gpt_neox.layers[0].attention.query_key_value.weight
    three = fused.detach().view(4, 3, 8, 32)
    fused.data = three[:, [0, 2, 1]].reshape(96, 32)


def _parallel(model: Any) -> None:
    model.gpt_neox.layers[1].use_parallel_residual = True


def _no_bias(model: Any) -> None:
    model.gpt_neox.layers[0].mlp.dense_h_to_4h.bias.data.zero_()


def _other_gelu(model: Any) -> None:
    model.gpt_neox.layers[0].mlp.act = torch.nn.GELU()


def _other_base(model: Any) -> None:
    rotary = model.gpt_neox.rotary_emb
    rotary.inv_freq = rotary.inv_freq**1.01


def _a_quarter(model: Any) -> None:
    rotary = model.gpt_neox.rotary_emb
    rotary.inv_freq = rotary.inv_freq[:1]


OFF = {
    "keys for values": _keys_for_values,
    "parallel residual": _parallel,
    "a bias lost": _no_bias,
    "another gelu": _other_gelu,
}
ON = {"another base": _other_base, "a quarter turned": _a_quarter}


@pytest.mark.parametrize("fault", [*OFF, *ON])
def test_a_planted_fault_is_seen_by_the_proof_that_is_for_it(models, fault):
    origin = open_origin(models["gpt2"], "rope", "cpu")
    made = swap(origin, "rope", OLD).model
    ({**OFF, **ON}[fault])(made)
    off, on = prove(origin, made, "rope")
    assert on.verdict == "FAIL" and off.verdict == ("FAIL" if fault in OFF else "PASS")
    with pytest.raises(ProofError, match="nothing is written"):
        prove_swap(origin, migrate_swap.Swap(made), "rope", OLD)


def test_alibi_without_the_division_is_seen(models, monkeypatch):
    """The paper's slopes are not Falcon's."""
    origin = open_origin(models["gpt2"], "alibi", "cpu")
    made = swap(origin, "alibi", OLD).model
    plain = FalconALiBi.bias
    monkeypatch.setattr(FalconALiBi, "bias", lambda self, h, i, j: plain(self, h, i, j) * self.scale)
    off, on = prove(origin, made, "alibi")
    assert (off.verdict, on.verdict) == ("PASS", "FAIL")


def test_a_table_that_leaks_is_seen(models):
    origin = open_origin(models["gpt2"], "rope", "cpu")

    def leaking() -> Any:
        body = origin.body()
        weights = {**body.weights, "norm.bias": body.weights["norm.bias"] + body.old.mean(0)}
        return to_neox(type(body)(**{**body.__dict__, "weights": weights}), OLD)

    check = unused(origin, leaking(), leaking)
    assert check.verdict == "FAIL" and "changes with the old table" in check.sentence
    held = swap(origin, "nope", OLD).model
    held.transformer.wpe.weight.data = origin.table()[0]
    assert "holds the old table" in unused(origin, held, lambda: held).sentence


def test_the_reference_is_the_source_s_own_code(models):
    """It is an oracle only if it agrees with models that it was not written from."""
    for name in ("gpt2", "opt", "learned"):
        origin = open_origin(models[name], "rope", "cpu")
        body = origin.body()
        own = origin.loaded(IDS[:, :OLD])
        assert torch.allclose(logits(body, IDS[:, :OLD], table=body.old).float(), own, atol=1e-4), name
        assert not torch.allclose(logits(body, IDS[:, :OLD]).float(), own, atol=1e-1), name


@pytest.mark.parametrize("heads", [2, 6, 12])
def test_falcon_s_alibi_is_transformers_own(heads):
    length = 700
    row = (
        build_alibi_tensor(torch.ones(1, length, dtype=torch.long), heads, torch.float32).view(heads, length) / 16**0.5
    )
    ours = FalconALiBi(heads, 16).bias(torch.arange(heads)[:, None], torch.zeros(1, 1), torch.arange(length)[None])
    assert torch.equal(ours.float(), row.float())
    first = min(n for h in range(heads) for n in range(1, length) if row[h, n] == row[h, n - 1])
    assert flat_from(heads) == first and first <= 257
    exact = torch.tensor(slopes(heads))[:, None] * torch.arange(length) / 4
    assert float((ours - exact).abs().max()) > 0.02  # what is said of rounding is no detail


# -- fading
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("gpt2", "rope"),
        ("gpt2", "alibi"),
        ("opt", "rope"),
        ("learned", "alibi"),
        ("sinusoidal", "rope"),
        ("gpt2", "nope"),
    ],
)
def test_fading_begins_as_the_source_and_ends_as_the_target(models, name, to):
    origin = open_origin(models[name], to, "cpu")
    made = swap(origin, to, OLD).model
    source, target = origin.loaded(IDS[:, :OLD]), run(made)
    old, offset = origin.table()
    with fading(made, to, 10, old[offset:]) as step:
        step(0)
        assert torch.allclose(run(made), source, atol=1e-4) and not torch.allclose(run(made), target, atol=1e-1)
        step(5)
        half = run(made)
        assert not torch.allclose(half, source, atol=1e-2) and not torch.allclose(half, target, atol=1e-2)
        step(10)
        assert torch.allclose(run(made), target, atol=1e-5)
        step(11)
        assert torch.allclose(run(made), target, atol=1e-5)
        step(0)
        with pytest.raises(ValueError, match=f"end at {OLD}"):
            run(made, IDS)
    assert torch.equal(run(made), target)


def test_a_llama_s_rotation_fades(models):
    origin = open_origin(models["llama"], "nope", "cpu")
    made = swap(origin, "nope", OLD).model
    target = run(made)
    made.model.rotary_emb.inv_freq = origin.model.model.rotary_emb.inv_freq.clone()
    with fading(made, "nope", 4) as step:
        step(0)
        assert torch.allclose(run(made), run(origin.model), atol=1e-4)
        step(4)
        assert torch.allclose(run(made), target, atol=1e-5)
    assert torch.equal(run(made), target)


# -- tables
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("length", [9, 16, 17, 40])
def test_a_longer_table_by_another_way(method, offset, length):
    table = torch.randn(8 + offset, 3, generator=torch.Generator().manual_seed(0))
    made = longer(table, length, method, offset=offset)
    old = table[offset:].double().numpy()
    if method == "tile":
        want = np.concatenate([old] * 6)[:length]
    else:
        stay = 2 if method == "stretch" else 0
        at = np.linspace(0, len(old) - stay - 1, length - stay)
        rest = np.stack([np.interp(at, np.arange(len(old) - stay), old[stay:, c]) for c in range(3)], 1)
        want = np.concatenate([old[:stay], rest])
    assert (
        made.shape == (length + offset, 3) and made.dtype == table.dtype and torch.equal(made[:offset], table[:offset])
    )
    assert np.abs(made[offset:].double().numpy() - want).max() < 1e-6
    same = rows_kept(8, method)
    assert (
        torch.equal(made[: offset + same], table[: offset + same])
        and same == {"tile": 8, "interpolate": 1, "stretch": 2}[method]
    )
    if method != "tile":
        assert torch.equal(made[-1], table[-1])


def test_a_table_that_is_no_longer_is_refused():
    for length, method, words in ((8, "tile", "got 8 for 8 rows"), (16, "wrap", "got 'wrap'")):
        with pytest.raises(ValueError, match=words):
            longer(torch.randn(8, 3), length, method)


@pytest.mark.parametrize("name", ["gpt2", "opt", "learned"])
@pytest.mark.parametrize("method", METHODS)
def test_a_longer_model_reads_with_its_new_rows(models, name, method):
    origin = open_origin(models[name], "longer-table", "cpu")
    made = swap(origin, "longer-table", 2 * OLD, method)
    assert [one.verdict for one in prove_swap(origin, made, "longer-table", 2 * OLD)] == ["PASS", "PASS", "PASS"]
    assert torch.allclose(run(made.model), origin.loaded(IDS[:, :OLD]), rtol=0, atol=1e-4) == (method == "tile")
    wrong = made.table.clone()
    wrong[OLD + 4] += torch.randn(
        wrong.shape[1], generator=torch.Generator().manual_seed(0)
    )  # a row that no old text meets
    off, on = prove(origin, made.model, "longer-table", wrong)
    assert (off.verdict, on.verdict) == ("PASS", "FAIL")


def test_it_loads_in_plain_transformers_with_exactly_its_own_tensors(models, tmp_path):
    from milepost.checkpoints.migration.folder import save

    for name, to in (("gpt2", "rope"), ("opt", "alibi"), ("learned", "rope"), ("llama", "nope")):
        origin = open_origin(models[name], to, "cpu")
        made = swap(origin, to, OLD).model
        save(made, torch.float32, tmp_path / f"{name}-{to}")
        loaded, told = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / f"{name}-{to}", output_loading_info=True
        )
        assert not told["missing_keys"] and not told["unexpected_keys"]
        assert torch.equal(run(loaded.eval()), run(made))
        names = set(load_file(tmp_path / f"{name}-{to}" / "model.safetensors"))
        assert not any("wpe" in one or "embed_positions" in one or "table" in one for one in names)
