"""resize: a checkpoint whose learned table of positions is for another grid or length, in a folder that others load.

    done = resize("path/to/vit", grid=(24, 24), out="vit-384")
    done = resize("path/to/bert", length=1024, out="bert-1024")
    done.ok, done.source, done.target, done.changed

The table is resampled by `milepost.resize_table`; every other weight is copied. config.json says the new size, and so
does the image processor where it said the old one. A longer text table is stretched: neighbours are nearer to each
other than the model has seen, so measure, and tune. The source is only read. The folder is written beside OUT
(.OUT.unfinished), proved there (`proof`), and renamed; where a check fails it is kept, and `ok` is False. What
was done is in OUT/milepost.json, and with the table's picture in OUT/milepost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from milepost.checkpoints.files import SIDECAR, torch_dtypes, values
from milepost.checkpoints.resizing import report
from milepost.checkpoints.resizing.alike import alike
from milepost.checkpoints.resizing.folder import write_folder
from milepost.checkpoints.resizing.proof import prove
from milepost.checkpoints.resizing.source import ANTIALIASED, SQUARE, PositionTable, open_table
from milepost.checkpoints.result import CommandResult
from milepost.draw import fill
from milepost.encodings.resize_table import resize_table
from milepost.measure.folder import check_out, new_folder
from milepost.measure.results import provenance, write_json
from milepost.rope import ConfigError
from milepost.rope.engines.written import Refused


@dataclass(frozen=True)
class Resized(CommandResult):
    """What was done: plain data.

    ``source`` and ``target`` are grids (rows, columns) or lengths (n,); ``changed`` has keys of configs, old and new.

    ``alike`` is what the table looks like, "before" and "after": see `alike`.
    """

    model: str
    out: str
    family: str
    table: str
    source: tuple[int, ...]
    target: tuple[int, ...]
    prefix: int
    how: str
    changed: dict[str, list[Any]]
    alike: dict[str, dict[str, Any]]
    checks: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether no check of the written folder failed."""
        return all(check["passed"] is not False for check in self.checks)

    leading = ("schema", "ok")
    document = staticmethod(report.document)


def resize(
    model: str | Path,
    *,
    grid: tuple[int, int] | None = None,
    length: int | None = None,
    out: str | Path,
    mode: Literal["bicubic", "bilinear"] = "bicubic",
    antialias: bool | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Resized:
    """Write ``model`` to ``out`` with its table for ``grid`` (rows, columns of patches), or for ``length`` tokens.

    ``antialias`` is, unless told, what transformers does for this family: yes for DINOv2 with registers, no for the
    others.
    """
    if (grid is None) == (length is None):
        raise ConfigError("say either the new grid, such as 24x24 patches, or the new length, such as 1024 tokens")
    if length is not None and (antialias is not None or mode != "bicubic"):
        raise ConfigError("a table of one axis is resampled linearly: mode and antialias are for grids")
    source = open_table(model, text=length is not None)
    own = source.family in ANTIALIASED
    smooth = own if antialias is None else antialias
    target = (length,) if length is not None else tuple(grid or ())
    _check(source, target)
    folder = check_out(out, source.folder)
    old = values(source.held).to(torch_dtypes()[source.held.dtype])
    table = resize_table(old, source=source.sides, target=target, prefix=source.prefix, mode=mode, antialias=smooth)
    with new_folder(folder) as draft:
        work = draft.files
        changed, left_out, notes = write_folder(source, table, target, work, tell)
        tell("loading it with transformers")
        checks = prove(source, work, table, target, plain=mode == "bicubic" and smooth == own)
        how = "linear" if length is not None else f"{mode}, {'antialiased' if smooth else 'not antialiased'}"
        done = Resized(
            model=str(model), out=str(folder), family=source.family, table=source.held.name, source=source.sides,
            target=target, prefix=source.prefix, how=how, changed=changed,
            alike={"before": alike(old, source.sides, source.prefix), "after": alike(table, target, source.prefix)},
            checks=tuple(asdict(check) for check in checks), left_out=left_out, notes=notes,
            provenance=provenance(grid=list(target), mode=how, source=list(source.sides), prefix=source.prefix),
        )  # fmt: skip
        data = done.to_json()
        write_json(work / SIDECAR, {"resized": {key: value for key, value in data.items() if key != "alike"}})
        fill(work / "milepost", "resized", data, report.document(data))
    return done


def _check(source: PositionTable, target: tuple[int, ...]) -> None:
    """Refuse what needs no resizing, or would be read wrongly."""
    current, asked = (" x ".join(map(str, sides)) for sides in (source.sides, target))
    if any(n < 1 for n in target):
        raise ConfigError(f"every side must be at least 1, got {asked}")
    if target == source.sides:
        raise Refused(f"the table is for {current} already: there is nothing to resize")
    if source.patch is None and target[0] < source.sides[0]:
        raise Refused(
            f"the table has {current} positions, and its first {asked} serve a text of {asked} tokens as they are: "
            "there is nothing to resize"
        )
    if source.family in SQUARE and target[0] != target[1]:
        raise Refused(
            f"transformers reads the table of {source.family} as a square, and resamples it by itself for an image of "
            f"{asked} patches: keep this table and give it such images; a table of another shape would be read wrongly"
        )
