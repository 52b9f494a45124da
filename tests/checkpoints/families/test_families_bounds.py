"""What measuring a stranger's config may take is bounded, and says so; and what is not run again changes no answer."""

from __future__ import annotations

import json
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from milepost.checkpoints import inspect
from milepost.checkpoints.families import CannotBuild, bounds
from milepost.checkpoints.families.bounds import layers_of
from milepost.checkpoints.families.measure import MeasuredFamily, measure
from milepost.checkpoints.families.turns import find_turn
from milepost.checkpoints.model.quiet import quiet
from milepost.rope.config.families import FAMILIES


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(**config: Any) -> MeasuredFamily:
    with quiet():
        return measure(config)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "gemma3_text", "num_hidden_layers": 10**9}, "it has 1000000000 layers, and 128 are the most"),
        ({"model_type": "gpt2", "n_layer": 10**9}, "it has 1000000000 layers"),
        ({"model_type": "clip", "vision_config": {"num_hidden_layers": 2**40}}, "it has 1099511627776 layers"),
        ({"model_type": "gemma3_text", "layer_types": ["full_attention"] * 4000}, "it has 4000 layers"),
        ({"model_type": "gptj", "n_layer": 1, "n_positions": 1 << 17}, "can't allocate memory"),
        ({"model_type": "vit", "num_hidden_layers": 1, "image_size": 1 << 20}, "more than 34 million parameters"),
        ({"model_type": "dinov3_vit", "num_hidden_layers": 1, "image_size": 1 << 20, "patch_size": 1 << 10}, "million"),
    ],
    ids=[
        "layers",
        "layers under another name",
        "layers of a part",
        "a list",
        "a table for each row",
        "a table",
        "patches",
    ],
)
def test_sizes_that_no_model_has_are_refused(config: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotBuild, match=why):
        run(**config)


def test_a_config_of_many_values_is_refused_before_any_class_copies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedConfig

    monkeypatch.setattr(PreTrainedConfig, "from_dict", lambda *_, **__: pytest.fail("a class read it"))
    with pytest.raises(CannotBuild, match="its config has 100000 values, and 8192 are the most"):
        run(model_type="nanochat", num_hidden_layers=1, deep=[[[7] * 99_995]])


def test_a_long_list_of_labels_is_no_reason_to_refuse() -> None:
    """As long as ImageNet's, beside the words and inside of a part."""
    labels = {str(number): "a label" for number in range(21_841)}
    plain = run(model_type="nanochat", num_hidden_layers=2)
    assert run(model_type="nanochat", num_hidden_layers=2, id2label=labels) == plain
    assert run(model_type="nanochat", num_hidden_layers=2, vision_config={"label2id": labels}) == plain


def test_time_is_bounded_and_inspect_reads_the_words_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.0)
    monkeypatch.delitem(FAMILIES, "llama")
    words = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "rope_theta": 1e4, **words}))
    read = inspect(tmp_path / "config.json")
    assert any("takes more than 0 s of the processor" in warning for warning in read.warnings)
    assert [layer.rotary for layer in read.layers] == [16, 16]


def test_what_is_kept_of_a_run_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from milepost.checkpoints.families import watch

    monkeypatch.setattr(watch, "NUMBERS", 1000)
    with pytest.raises(CannotBuild, match="numbers to look at"):
        run(model_type="nanochat", num_hidden_layers=1)


def test_keys_that_name_layers_and_keys_that_do_not() -> None:
    assert layers_of({"num_hidden_layers": 5, "vision_config": {"depth": 9}, "layer_types": ["a"] * 7}) == 9
    assert layers_of({"block_multiple_of": 256, "layer_norm_eps": 1e-5, "sparse_block_size": 512, "x": True}) == 0


def test_layers_without_attention_are_run_for_one_short_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.lfm2 import modeling_lfm2

    right, rows = modeling_lfm2.Lfm2ShortConv.forward, []

    def noted(self: Any, hidden_states: Any, *args: Any, **more: Any) -> Any:
        rows.append(len(hidden_states))
        return right(self, hidden_states, *args, **more)

    monkeypatch.setattr(modeling_lfm2.Lfm2ShortConv, "forward", noted)
    kinds = ["conv", "full_attention", "conv"]
    measured = run(model_type="lfm2", num_hidden_layers=3, layer_types=kinds)
    assert rows == [1, 1]
    assert [layer.attends for layer in measured.layers] == [False, True, False]
    assert measured.layers[1].turn is not None and measured.layers[1].turn.base == 1e6


def test_layers_that_turn_alike_are_described_once_and_others_by_themselves() -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    local, again, whole, last = run(model_type="gemma3_text", num_hidden_layers=4, layer_types=kinds).layers
    assert local.turn is again.turn and whole.turn is last.turn and local.turn is not None and whole.turn is not None
    assert (local.turn.base, whole.turn.base) == (1e4, 1e6)


@pytest.mark.parametrize("change", ["a pair more", "another angle", "a channel beside it", "another size"])
def test_a_turn_that_differs_in_anything_is_not_taken_for_one_that_is_known(change: str) -> None:
    given, angle = torch.randn(6, 5, 8, dtype=torch.float64), torch.arange(6.0, dtype=torch.float64)[:, None]

    def turned(x: torch.Tensor, w: tuple[float, ...], m: float = 1.0) -> torch.Tensor:
        z = torch.polar(torch.full((6, len(w)), m, dtype=torch.float64), angle * torch.tensor(w, dtype=torch.float64))
        half = len(w)
        out = x.clone()
        pairs = torch.complex(x[..., :half], x[..., half : 2 * half]) * z[:, None]
        out[..., :half], out[..., half : 2 * half] = pairs.real, pairs.imag
        return out

    known = find_turn(given, turned(given, (1.0, 0.1)))
    other = torch.randn(6, 5, 8, dtype=torch.float64)
    assert find_turn(other, turned(other, (1.0, 0.1)), [known]) is known
    if change == "a channel beside it":
        got = turned(other, (1.0, 0.1))
        got[..., 6] += 0.01
    else:
        w = {"a pair more": (1.0, 0.1, 0.02), "another angle": (1.0, 0.1001), "another size": (1.0, 0.1)}[change]
        got = turned(other, w, 1.001 if change == "another size" else 1.0)
    assert find_turn(other, got, [known]) is not known


def test_two_threads_leave_no_limit_of_memory_behind() -> None:
    """The limit is the process's: one that came while another was set would put that one back at its end."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    first_is_in, second_may_end = threading.Event(), threading.Event()

    def first() -> None:
        with bounds.limited():
            first_is_in.set()
            time.sleep(0.2)  # the second comes meanwhile
        second_may_end.set()

    def second() -> None:
        first_is_in.wait(10)
        with bounds.limited():
            second_may_end.wait(1)

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert resource.getrlimit(resource.RLIMIT_AS) == before
