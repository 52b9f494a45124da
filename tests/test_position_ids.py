"""Golden position ids: made anew they are the same, milepost and transformers give them, and known faults are caught."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from milepost.attention.shards import places
from milepost.layout import Layout
from milepost.testing import check_positions, golden_positions
from tools import position_ids

CASES = list(golden_positions())
MULTIMODAL = [case for case in CASES if case["layout"].startswith("multimodal")]


def ours(layout: str, given: dict[str, Any]) -> Any:
    """milepost's own answer, for the layouts of text."""
    if layout in ("packed", "prefix-shared"):
        if "prefix" in given:
            rest = [torch.arange(n) + given["prefix"] for n in given["lengths"]]
            return torch.cat([torch.arange(given["prefix"]), *rest])
        return Layout.packed(given["lengths"]).pos
    if layout.endswith("padded"):
        return Layout.padded(torch.tensor(given["mask"]).bool()).pos
    if layout == "decode":
        return torch.tensor(given["mask"]).sum(1, keepdim=True) + given["said"]
    if layout.startswith("sharded"):
        pos = Layout.packed(given["lengths"]).pos.flatten()
        how = "zigzag" if layout.endswith("zigzag") else "contiguous"
        return pos[places(len(pos), given["rank"], given["world"], how)]  # type: ignore[arg-type]
    return None


def test_the_files_are_those_that_are_made() -> None:
    made = [*position_ids.multimodal_cases(), *position_ids.text_cases()]
    assert json.loads(json.dumps(made)) == CASES
    assert len(CASES) >= 40


def test_milepost_gives_them() -> None:
    verdicts = check_positions(ours)
    assert verdicts.ok, str(verdicts)
    assert sum(v.passed is None for v in verdicts.verdicts) == len(MULTIMODAL)


@pytest.mark.parametrize("n", range(len(MULTIMODAL)))
def test_transformers_gives_them_where_it_is_right(n: int) -> None:
    """transformers' own get_rope_index, on the class's code without its weights."""
    case = MULTIMODAL[n]
    given = case["given"]
    got = theirs(given)
    want = torch.tensor(case["ids"])
    if case["transformers"] is True:
        assert torch.equal(got, want)
    else:
        assert not torch.equal(got, want)  # when this is put right there, the file must say so
        text = given["parts"][-1]
        assert torch.equal(got[:, :-text], want[:, :-text])  # the video itself is right


def theirs(given: dict[str, Any]) -> torch.Tensor:
    family = given["family"]
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    made = next(
        value for name, value in vars(module).items() if name.endswith("Model") and hasattr(value, "get_rope_index")
    )
    vision = SimpleNamespace(
        spatial_merge_size=given["merge"], tokens_per_second=given.get("per_second", 1), temporal_merge_size=2
    )
    stand_in = SimpleNamespace(config=SimpleNamespace(vision_config=vision, temporal_merge_size=2))
    stand_in.get_vision_position_ids = made.get_vision_position_ids.__get__(stand_in)
    kinds: list[int] = []
    for part in given["parts"]:
        if isinstance(part, int):
            kinds += [0] * part
        else:
            t, h, w = part["grid"]
            frames = t // given.get("frames_of", 1) if part["kind"] == "video" else t
            kinds += [1 if part["kind"] == "image" else 2] * (frames * h * w // given["merge"] ** 2)
    grids = {
        k: [p["grid"] for p in given["parts"] if not isinstance(p, int) and p["kind"] == k] for k in ("image", "video")
    }
    if family in ("qwen3_vl", "glm4v") and grids["video"]:  # there one video has many frames, with words between
        frames_ = grids["video"]
        grids["video"] = [[len(frames_), *frames_[0][1:]]]
    more: dict[str, Any] = {}
    if "seconds" in given:
        more["second_per_grid_ts"] = [given["seconds"]] * len(grids["video"])
    ids, _ = made.get_rope_index(
        stand_in,
        torch.zeros(1, len(kinds), dtype=torch.long),
        torch.tensor([kinds]),
        torch.tensor(grids["image"]) if grids["image"] else None,
        torch.tensor(grids["video"]) if grids["video"] else None,
        **more,
    )
    return ids[:, 0]


# -- faults that people met, as collators -------------------------------------------------------------------------------


def counts_on(layout: str, given: dict[str, Any]) -> Any:
    """Packed texts counted through (transformers#47342, flash-attention#2381): no text begins at 0 again."""
    return list(range(sum(given["lengths"]))) if layout == "packed" else None


def counts_padding(layout: str, given: dict[str, Any]) -> Any:
    """Padding counted as tokens."""
    return [list(range(len(row))) for row in given["mask"]] if layout == "left-padded" else None


def begins_in_every_shard(layout: str, given: dict[str, Any]) -> Any:
    """Every rank counts from 0 (verl#7137, prime-rl#2392)."""
    return list(range(sum(given["lengths"]) // given["world"])) if layout.startswith("sharded") else None


def shards_before_packing(layout: str, given: dict[str, Any]) -> Any:
    """Ids of the whole row, not of its texts."""
    if not layout.startswith("sharded"):
        return None
    how = "zigzag" if layout.endswith("zigzag") else "contiguous"
    return places(sum(given["lengths"]), given["rank"], given["world"], how)  # type: ignore[arg-type]


def contiguous_for_zigzag(layout: str, given: dict[str, Any]) -> Any:
    """Zigzag data with contiguous ids (NeMo Automodel#1482)."""
    return ours("sharded contiguous", given) if layout == "sharded zigzag" else None


def decodes_by_row_length(layout: str, given: dict[str, Any]) -> Any:
    """The next id from the padded length."""
    return [[len(row) + given["said"]] for row in given["mask"]] if layout == "decode" else None


def goes_on_after_a_continuation(layout: str, given: dict[str, Any]) -> Any:
    """The second continuation of a shared prefix begins where the first ended."""
    return list(range(given["prefix"] + sum(given["lengths"]))) if layout == "prefix-shared" else None


def advances_by_tokens(layout: str, given: dict[str, Any]) -> Any:
    """An image advances by its tokens, not by its longer side (Megatron-LM#4938, vLLM#46552)."""
    if not layout.startswith("multimodal"):
        return None
    count = len(next(c for c in MULTIMODAL if c["given"] == given)["ids"][0])
    return [list(range(count))] * 3


def seconds_for_stills(layout: str, given: dict[str, Any]) -> Any:
    """Time steps of a video dropped (transformers#45330)."""
    if not layout.startswith("multimodal") or "seconds" not in given:
        return None
    return position_ids.multimodal(given["parts"])


def one_axis(layout: str, given: dict[str, Any]) -> Any:
    """Ids of one axis where three are wanted (LlamaFactory#7318)."""
    return [0] if layout.startswith("multimodal") else None


@pytest.mark.parametrize(
    "fault",
    [
        counts_on, counts_padding, begins_in_every_shard, shards_before_packing, contiguous_for_zigzag,
        decodes_by_row_length, goes_on_after_a_continuation, advances_by_tokens, seconds_for_stills, one_axis,
    ],
)  # fmt: skip
def test_a_known_fault_is_caught(fault: Any) -> None:
    verdicts = check_positions(fault)
    assert not verdicts.ok
    assert any(
        "must have position" in v.detail or "expected" in v.detail for v in verdicts.verdicts if v.passed is False
    )


def test_a_collator_that_raises_is_one_failure_and_no_end() -> None:
    def broken(layout: str, given: dict[str, Any]) -> Any:
        raise RuntimeError("no")

    verdicts = check_positions(broken).verdicts
    assert len(verdicts) == len(CASES) and all(v.detail == "RuntimeError: no" for v in verdicts)
