"""Tuning a model whose positions were changed: a few steps of transformers' Trainer at the new length, with low rate
and warm-up.

    rate       2e-5, constant after warm-up over a tenth of the steps (at most 20); 0 at the end of the last ``decay``
    a step     ``batch`` windows of text on each process; they do not overlap; the seed decides about their order
    weights    all of them; or LoRA, where peft is installed, merged at the end into an ordinary checkpoint
    numbers    float32; on a GPU with bfloat16 (or float16) where autocast puts it

A tune that is killed goes on from its last whole checkpoint, and on the CPU ends with the same bits as one that was
not: optimizer, schedule, random numbers and the place in the text are saved with it. `accelerate launch` runs it on
several processes; the first of them does the rest.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from milepost.checkpoints.files import INDEX, SourceFiles, in_folder, main_dtype
from milepost.checkpoints.model.hf_load import model_class
from milepost.checkpoints.model.quiet import quiet
from milepost.checkpoints.model.text import Text
from milepost.measure.folder import check_room, saving
from milepost.rope import ConfigError
from milepost.rope.config.files import load

WARM_UP = 20
KEPT = 2
"""Checkpoints that are kept: the last may be half-written."""
WHOLE = "whole"
"""A file that says that the checkpoint beside it was written to its end."""
STATE = 12
"""Bytes of a checkpoint for each number that is trained: the number itself, and AdamW's two, in float32."""
LORA: dict[str, Any] = {
    "r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "target_modules": "all-linear",
    "task_type": "CAUSAL_LM",
}


@dataclass(frozen=True)
class Tuning:
    """How a model is tuned: so many ``steps`` on ``batch`` windows of ``length`` tokens; the rate falls to 0 over the
    last ``decay`` of them."""

    steps: int
    length: int
    rate: float = 2e-5
    seed: int = 0
    batch: int = 1
    decay: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"a step of tuning reads at least 1 window, got {self.batch}")
        if self.steps < 1 or self.length < 2 or not 0 < self.rate < math.inf:
            raise ConfigError(
                f"tuning wants at least 1 step, 2 tokens and a rate above 0, got {self.steps} steps, {self.length} "
                f"tokens and {self.rate:g}"
            )


def processes(device: str) -> Any:
    """What accelerate knows of this process and the others."""
    try:
        from accelerate import PartialState
    except ImportError as error:
        raise ConfigError(f"--tune needs the {error.name} package: pip install 'milepost[hf]'") from None
    return PartialState(cpu=device == "cpu")


def has_peft() -> bool:
    """Whether LoRA can be used."""
    import importlib.util

    return importlib.util.find_spec("peft") is not None


def windows_for(text: Text, tuning: Tuning) -> list[dict[str, torch.Tensor]]:
    """Every window of the text that there is, as the Trainer wants it: tokens (length,), which are their own labels."""
    cut, _ = text.windows(tuning.length - 1, text.tokens, least=1)
    return [{"input_ids": row, "labels": row} for row in torch.from_numpy(cut)]


def checkpoint_size(source: SourceFiles, lora: bool) -> int:
    """About the bytes of one checkpoint. (LoRA trains a small share of the numbers.)"""
    return STATE * sum(tensor.count for tensor in in_folder(source.folder)[0].values()) // (10 if lora else 1)


def room_to_tune(source: SourceFiles, state: Path, lora: bool) -> int:
    """The bytes that training needs besides the files of the new folder, less those that its state takes already.

    A checkpoint is written before the oldest is removed, so there may be one more than are kept.
    """
    held = sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    return max(0, (KEPT + 1) * checkpoint_size(source, lora) - held)


@contextlib.contextmanager
def as_it_is(model: Any) -> Iterator[Callable[[int], None]]:
    """Nothing about a model is changed while it is tuned."""
    yield lambda step: None


def tune(
    source: SourceFiles,
    folder: Path,
    windows: list[dict[str, torch.Tensor]],
    tuning: Tuning,
    *,
    device: str,
    state: Path,
    tell: Callable[[str], None],
    lora: bool | None = None,
    around: Callable[[Any], contextlib.AbstractContextManager[Callable[[int], None]]] = as_it_is,
) -> dict[str, Any]:
    """Train the source's weights under the config in ``folder``, and write them there; checkpoints are in ``state``.

    Says what was done.

    ``around`` changes a model while it is tuned, and gives a function that is called with the number of each step
    before it is done.
    """
    import transformers

    lora = has_peft() if lora is None else lora
    done = _last(state, tuning.steps)
    ended = done is not None and _step(done) == tuning.steps  # the Trainer would do one step more
    model = _model(source.folder if done is None or not ended or lora else done, folder)
    if lora:
        from peft import LoraConfig, PeftModel, get_peft_model  # type: ignore[import-not-found,unused-ignore]

        transformers.set_seed(tuning.seed)  # LoRA begins with random numbers
        model = PeftModel.from_pretrained(model, str(done)) if ended else get_peft_model(model, LoraConfig(**LORA))
    gpu = device != "cpu"
    half = {"bf16": torch.cuda.is_bf16_supported(), "fp16": not torch.cuda.is_bf16_supported()} if gpu else {}
    warm = min(WARM_UP, -(-tuning.steps // 10))
    ends = {"num_decay_steps": tuning.decay, "decay_type": "linear"}
    schedule = (
        {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": ends}
        if tuning.decay
        else {"lr_scheduler_type": "constant_with_warmup"}
    )
    with quiet(), around(model) as step:
        args = transformers.TrainingArguments(
            output_dir=str(state),
            max_steps=tuning.steps,
            per_device_train_batch_size=tuning.batch,
            learning_rate=tuning.rate,
            warmup_steps=warm,
            **schedule,
            weight_decay=0.0,
            seed=tuning.seed,
            use_cpu=not gpu,
            report_to=[],
            disable_tqdm=True,
            logging_steps=max(1, tuning.steps // 20),
            save_strategy="steps",
            save_steps=max(1, tuning.steps // 10),
            save_total_limit=KEPT,
            **half,
        )
        each = checkpoint_size(source, lora)
        trainer = _trainer(transformers.Trainer, state, each)(model=model, args=args, train_dataset=windows)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(_progress(transformers.TrainerCallback, tuning, tell, step)())
        if done is not None:
            tell(f"going on from step {_step(done)} of {tuning.steps}")
        if done is not None and ended:
            trainer.state = transformers.TrainerState.load_from_json(str(done / "trainer_state.json"))
        else:
            trainer.train(resume_from_checkpoint=None if done is None else str(done))
        if args.process_index == 0:
            tuned = trainer.accelerator.unwrap_model(trainer.model)
            _save(tuned.merge_and_unload() if lora else tuned, source, folder)
    rows, precision = args.train_batch_size * args.world_size, next((name for name, on in half.items() if on), None)
    return {
        **asdict(tuning),
        "warm_up": warm,
        "windows": len(windows),
        "windows_a_step": rows,
        "times_read": round(tuning.steps * rows / len(windows), 3),
        "lora": LORA if lora else None,
        "mixed_precision": precision,
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "loss": [{"step": row["step"], "loss": row["loss"]} for row in trainer.state.log_history if "loss" in row],
    }


def _model(weights: Path, folder: Path) -> Any:
    """The weights of one folder, in float32, under the config of the other."""
    import transformers

    with quiet():
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        made = model_class(load(folder / "config.json"))
        return made.from_pretrained(
            str(weights),
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )


def _save(model: Any, source: SourceFiles, folder: Path) -> None:
    """The weights alone, in the source's precision: config.json is written already."""
    saved = folder / "tuned"
    with saving("the tuned model", folder):
        model.to(main_dtype(in_folder(source.folder)[0])).save_pretrained(saved)
    (folder / INDEX).unlink(missing_ok=True)  # the source's, which may have had other files
    for path in (*saved.glob("*.safetensors"), *saved.glob(INDEX)):
        path.replace(folder / path.name)
    shutil.rmtree(saved)


def _last(state: Path, steps: int) -> Path | None:
    """The last checkpoint that was written to its end, of at most so many steps."""
    whole = (path.parent for path in state.glob(f"checkpoint-*/{WHOLE}"))
    return max((path for path in whole if _step(path) <= steps), key=_step, default=None)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _trainer(base: Any, state: Path, each: int) -> Any:
    """A Trainer that leaves no partial checkpoint behind where the disk is full: the last whole one is kept."""

    class Saving(base):  # type: ignore[misc]
        def _save_checkpoint(self, *args: Any, **more: Any) -> None:
            name = f"checkpoint-{self.state.global_step}"
            try:
                with saving(name, state):
                    check_room(state / name, each)
                    super()._save_checkpoint(*args, **more)
            except OSError:
                shutil.rmtree(state / name, ignore_errors=True)
                raise

    return Saving


def _progress(base: Any, tuning: Tuning, tell: Callable[[str], None], before: Callable[[int], None]) -> Any:
    """A callback that says where it is, marks checkpoints that are whole, and calls ``before`` each step."""
    steps = tuning.steps

    class Progress(base):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            before(state.global_step)

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.began, self.first = time.monotonic(), state.global_step

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs and state.is_world_process_zero:
                each = (time.monotonic() - self.began) / max(1, state.global_step - self.first)
                left = round(each * (steps - state.global_step))
                word = (
                    "tuning"
                    if not tuning.decay
                    else "recovering"
                    if state.global_step <= steps - tuning.decay
                    else "fine-tuning"
                )
                tell(
                    f"{word}: step {state.global_step} of {steps}, loss {float(logs['loss']):.4f}, {left // 60} min "
                    f"{left % 60} s left"
                )

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                (Path(args.output_dir) / f"checkpoint-{state.global_step}" / WHOLE).touch()

    return Progress
