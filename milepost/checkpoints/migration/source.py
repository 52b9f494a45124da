"""The source of a migration: read, and never written. What can't be moved says so, and which families can.

    gpt2, opt                          a learned table, in Hugging Face form          to rope, alibi, nope, longer-table
    lab models                         learned, or sinusoidal that is added           to rope, alibi, nope; longer-table
                                       where there is a table
    llama, mistral, qwen2, smollm3     rotary, without a window                       to nope

``length`` is where the old positions end, or what was trained where they do not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from milepost.checkpoints.files import ONE, SourceFiles, from_hub, in_folder, is_lab, main_dtype, read_source
from milepost.checkpoints.migration.body import Body, of_gpt2, of_lab, of_opt, table_of
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.loaded import Loaded
from milepost.encodings.learned import Learned
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.rope import ConfigError
from milepost.rope.config.files import load as read_json

TO = ("rope", "alibi", "nope", "longer-table")
TABLES = ("gpt2", "opt")
LLAMAS = ("llama", "mistral", "qwen2", "smollm3")
CAN = (
    f"{' and '.join(TABLES)} models and the lab's learned and sinusoidal ones can be moved to rope, alibi, nope or a "
    f"longer table; {', '.join(LLAMAS)} to nope"
)


@dataclass(frozen=True)
class Origin:
    """A model to be moved, in float32.

    ``files`` are those of its folder, ``dtype`` what most of its weights are stored in.

    ``ends`` is whether it can't read more than ``length`` tokens.
    """

    loaded: Loaded
    files: SourceFiles
    family: str
    length: int
    ends: bool
    dtype: torch.dtype

    @property
    def added(self) -> bool:
        """Whether its positions are added to the embedding; otherwise they turn q and k."""
        return self.family not in LLAMAS

    @property
    def model(self) -> Any:
        """The module itself."""
        return self.loaded.model

    def body(self) -> Body:
        """The model without its positions."""
        return {"gpt2": of_gpt2, "opt": of_opt, "lab": of_lab}[self.family](self.model)

    def table(self) -> tuple[Tensor, int]:
        """A copy of the learned table (offset + rows, C), and the offset."""
        table = table_of(self.model)
        if table is not None:
            return table[0].weight.detach().clone(), table[1]
        return self.body().old, 0


def open_origin(model: str | Path, to: str, device: str) -> Origin:
    """The model of a folder, a name on the Hub or a lab run, if it can be moved to ``to``.

    A ConfigError where it can't.
    """
    if to not in TO:
        raise ConfigError(f"a model can be moved to {', '.join(TO)}; got {to!r}")
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        raise ConfigError(
            f"{path} is a GGUF file: give the folder that it was made from (config.json and *.safetensors); {CAN}"
        )
    if is_lab(path):
        return _lab(path if path.is_dir() else path.parent, str(model), to, device)
    folder = path.resolve() if path.is_dir() else from_hub(str(model))
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} has no config.json and no model.json: give a checkpoint's folder, or a lab run's model; {CAN}"
        )
    config = read_json(folder / "config.json")
    family = str(config.get("model_type"))
    _check_family(family, to, config)
    loaded = load(folder, device=device)
    files = read_source(model, folder, config)
    dtype = main_dtype(in_folder(folder)[0])
    if family in LLAMAS:
        length = loaded.trained
        if length is None:
            raise ConfigError(
                f"{model} does not say its trained length: add max_position_embeddings to a copy of its config.json"
            )
        return Origin(loaded, files, family, length, False, dtype)
    table, offset = table_of(loaded.model) or (None, 0)
    assert table is not None
    _check_table(loaded.model, table, offset)
    return Origin(loaded, files, family, table.num_embeddings - offset, True, dtype)


def _check_family(family: str, to: str, config: Any) -> None:
    if family in LLAMAS and to == "nope":
        turns = config.get("no_rope_layers")
        if family == "smollm3" and turns and not any(turns):
            raise ConfigError("none of the layers of this smollm3 turns: it has no positions to take away")
        windowed = config.get("use_sliding_window", family == "mistral") and config.get("sliding_window")
        if windowed:
            raise ConfigError(
                f"layers of this {family} see {config['sliding_window']} tokens (sliding_window), which nope would "
                "not keep: give a model without"
            )
        return
    if family in LLAMAS:
        raise ConfigError(
            f"a {family} turns already, and can be moved to nope, not to {to}; `milepost extend` makes it read longer "
            f"texts. {CAN}"
        )
    if family not in TABLES:
        raise ConfigError(f"a model of type {family} can't be moved: {CAN}")


def _check_table(model: nn.Module, table: nn.Embedding, offset: int) -> None:
    """The table is one that serves positions, and nothing else."""
    rows = table.weight[offset:]
    named = list(model.named_parameters(remove_duplicate=False))
    tied = [name for name, other in named if other is table.weight][1:]
    tied += [name for name, other in named if other is not table.weight and torch.equal(other, table.weight)]
    if tied:
        raise ConfigError(
            f"the table of positions is tied to {tied[0]}: it can't be taken out without that; give a model whose "
            "table stands alone"
        )
    if not bool(rows.any()):
        raise ConfigError(f"the {len(rows)} rows of the table are zero: this model has no positions to be replaced")


def _lab(folder: Path, name: str, to: str, device: str) -> Origin:
    loaded = load(folder, device=device)
    model: Any = loaded.model
    first, others = model.encodings[0], model.encodings[1:]
    known = isinstance(first, Learned) or (isinstance(first, Sinusoidal) and first.how == "add")
    if not known or any(enc.points for enc in others):
        raise ConfigError(f"this lab model has {model.specs[0]}: {CAN}")
    if to == "longer-table" and not isinstance(first, Learned):
        raise ConfigError(
            f"this lab model has {model.specs[0]}, which has no table and no end: move it to rope, alibi or nope"
        )
    if isinstance(first, Learned) and not bool(first.table.any()):
        raise ConfigError(f"the {first.length} rows of the table are zero: this model has no positions to be replaced")
    digest = hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()
    files = SourceFiles(name, folder.resolve(), read_json(folder / "model.json"), digest, (ONE,))
    length = first.length if isinstance(first, Learned) else model.shape.length
    return Origin(loaded, files, "lab", length, isinstance(first, Learned), torch.float32)


def check_length(origin: Origin, to: str, length: int | None, anneal: bool) -> int:
    """What the new model is tuned for; an error where its new positions, or the old that fade, do not reach as far."""
    old = origin.length
    asked = length if length is not None else 2 * old if to == "longer-table" else old
    if asked < 2:
        raise ConfigError(f"the length is a number of tokens, at least 2, got {asked}")
    if to == "longer-table" and asked <= old:
        raise ConfigError(f"the table has {old} rows already: a longer one wants more (--length), got {asked}")
    if to == "nope" and origin.added and asked > old:
        raise ConfigError(
            f"nope is a table of zeros here, which ends at {old} tokens: give at most that (got {asked}), or move to "
            "rope or alibi"
        )
    if anneal and to == "longer-table":
        raise ConfigError(
            "--anneal fades old positions while others come in, and a longer table keeps the old: leave it out"
        )
    if anneal and asked > old:
        raise ConfigError(
            f"--anneal fades positions that end at {old} tokens, and can't be tuned with {asked}: give --length "
            f"{old}, or leave --anneal out"
        )
    return asked
