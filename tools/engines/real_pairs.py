"""`milepost parity FOLDER FILE.gguf` on real pairs: what llama.cpp's own converter makes of checkpoints, and of losses.

Of each pair the command is run as it is, then with a loss that is planted into the file: the base taken out, the tensor
of factors taken out, the rows of q put back into the source's order. What it says goes into
measured/llama.cpp-pairs.json.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from collect import MEASURED

OUT = MEASURED / "llama.cpp-pairs.json"
PAIRS = ("golden llama-3.1-8b", "golden smollm2-135m", "golden mistral-7b-v0.1", "golden qwen2.5-7b-yarn",
         "golden qwen3-8b", "golden phi-3.5-mini", "golden granite-3.3-8b", "golden olmo-2-7b", "gemma2 default flat",
         "llama yarn attention_factor 0.8", "llama linear flat", "golden gemma-3-4b")  # fmt: skip
FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def measure(version: str, python: Path, folder: Path) -> str:
    """Make the pairs with one build, compare them, and say how many planted losses were named."""
    configs = json.loads((MEASURED / "configs.json").read_text())
    place = folder / f"pairs-{version}"
    place.mkdir(exist_ok=True)
    job = place / "job.json"
    job.write_text(json.dumps({name.replace(" ", "-"): configs[name] for name in PAIRS}))
    script = Path(__file__).parent / "llama_cpp" / "make_pairs.py"
    subprocess.run([python, script, job, place], check=True, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = {}
    for name in PAIRS:
        pair = place / name.replace(" ", "-")
        own = compare(pair, pair.with_name(f"{pair.name}.gguf"))
        found[name] = {"as it is": own}
        for loss, (expected, plant) in LOSSES.items():
            planted = place / "planted.gguf"
            if plant(pair.with_name(f"{pair.name}.gguf"), planted):
                said = [line for line in compare(pair, planted) if line not in own]
                found[name][loss] = said
                if not any(expected in line for line in said):
                    raise RuntimeError(f"{loss} of {name} is not named: {said}")
    held = json.loads(OUT.read_text()) if OUT.exists() else {}
    OUT.write_text(json.dumps({**held, version: found}, indent=1) + "\n")
    shutil.rmtree(place)
    losses = sum(len(said) - 1 for said in found.values())
    return f"{len(found)} real pairs compared, {losses} planted losses named"


def compare(source: Path, file: Path) -> list[str]:
    """What the command says that the conversion lost."""
    command = [str(Path(sys.executable).with_name("milepost")), "parity", str(source), str(file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    answer = json.loads(done.stdout)
    assert (done.returncode == 0) == answer["same"]
    return list(answer["lost"])


def rewrite(file: Path, out: Path, keep: Any, change: Any) -> bool:
    """A copy of a GGUF file without some keys and tensors, and with others changed; whether anything is different."""
    reader = gguf.GGUFReader(file)
    arch = str(reader.fields["general.architecture"].contents())
    writer, different = gguf.GGUFWriter(out, arch), False
    for name, held in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        if not keep(name):
            different = True
            continue
        kinds = held.types
        writer.add_key_value(name, held.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for tensor in reader.tensors:
        if not keep(tensor.name):
            different = True
            continue
        made = change(tensor.name, np.asarray(tensor.data), reader, arch)
        different |= made is not tensor.data and not np.array_equal(made, tensor.data)
        writer.add_tensor(tensor.name, made)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return different


def _as_is(name: str, data: np.ndarray, reader: Any, arch: str) -> np.ndarray:
    return data


def _without_base(file: Path, out: Path) -> bool:
    reader = gguf.GGUFReader(file)
    if all(held.contents() == 10000 for name, held in reader.fields.items() if name.endswith("rope.freq_base")):
        return False  # what llama.cpp takes where the file says none
    return rewrite(file, out, lambda name: not name.endswith("rope.freq_base"), _as_is)


def _without_factors(file: Path, out: Path) -> bool:
    return rewrite(file, out, lambda name: name not in FACTORS, _as_is)


def _unpermuted(file: Path, out: Path) -> bool:
    """Rows of q in llama's order put back to halves, for architectures whose converter permutes them."""

    def change(name: str, data: np.ndarray, reader: Any, arch: str) -> np.ndarray:
        if arch != "llama" or not name.endswith("attn_q.weight"):
            return data
        heads = int(reader.fields[f"{arch}.attention.head_count"].contents())
        return data.reshape(heads, -1, 2, data.shape[-1]).swapaxes(1, 2).reshape(data.shape)

    return rewrite(file, out, lambda name: True, change)


LOSSES = {
    "base taken out": ("the base", _without_base),
    "factors taken out": ("not in the file", _without_factors),
    "rows of q not permuted": ("rows of attn_q", _unpermuted),
}
"""Losses by name: words that the answer has to have, and what plants them; those that change nothing are left out."""
