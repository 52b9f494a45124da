"""The files of a checkpoint: read, linked or copied, and written whole or not at all."""

from __future__ import annotations

from milepost.checkpoints.files.config import check_not_quantised, parts_of, write_config
from milepost.checkpoints.files.copy import TOKENIZER, copy_files, write_files, write_sidecar, write_weights
from milepost.checkpoints.files.source import SIDECAR, SourceFiles, check_links, files_of, from_hub, is_lab, read_source
from milepost.checkpoints.files.tensors import (
    INDEX,
    ONE,
    OTHER_WEIGHTS,
    PLAIN,
    StoredTensor,
    ending,
    in_folder,
    in_gguf,
    in_safetensors,
    main_dtype,
    torch_dtypes,
    values,
)

__all__ = [
    "INDEX",
    "ONE",
    "OTHER_WEIGHTS",
    "PLAIN",
    "SIDECAR",
    "TOKENIZER",
    "SourceFiles",
    "StoredTensor",
    "check_links",
    "check_not_quantised",
    "copy_files",
    "ending",
    "files_of",
    "from_hub",
    "in_folder",
    "in_gguf",
    "in_safetensors",
    "is_lab",
    "main_dtype",
    "parts_of",
    "read_source",
    "torch_dtypes",
    "values",
    "write_config",
    "write_files",
    "write_sidecar",
    "write_weights",
]  # fmt: skip
