"""llama.cpp's own C functions, from the shared library of the `xllamacpp` wheel.

The structures that are passed by value are read off the header of the very release (`llama.h` in its source
distribution), so that no offset is written down here. A graph's nodes are seen through the callback that llama.cpp has
for it (cb_eval): every rotation that a model makes comes by, with its parameters, what goes in and what comes out.
"""

from __future__ import annotations

import ctypes
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xllamacpp

SOURCE = next((Path(sys.prefix) / "source").glob("xllamacpp-*/thirdparty/llama.cpp"))
"""llama.cpp's source of this release: the header, and the converter."""
SERVER = 12
"""LLAMA_EXAMPLE_SERVER: whose flags are parsed."""
CPU = ctypes.CDLL(next(str(p) for p in Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")))
POINTER, INT, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float


def _structure(name: str) -> type[ctypes.Structure]:
    """A structure of llama.h, from its text."""
    text = (SOURCE / "include" / "llama.h").read_text()
    match = re.search(rf"struct {name} \{{(.*?)\n    \}}", text, re.DOTALL)
    assert match is not None, name
    fields = []
    for line in re.sub(r"//[^\n]*", "", match[1]).split(";"):
        words = line.replace("*", " * ").split()
        if not words:
            continue
        kinds = {"bool": ctypes.c_bool, "float": FLOAT, "size_t": ctypes.c_size_t}
        pointer = "*" in words or words[0].endswith("_callback")
        fields.append((words[-1], POINTER if pointer else kinds.get(words[0], ctypes.c_int32)))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


class Tensor(ctypes.Structure):
    """ggml_tensor, which is the same in both releases."""


Tensor._fields_ = [
    ("type", INT), ("buffer", POINTER), ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4), ("op", INT),
    ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32), ("src", ctypes.POINTER(Tensor) * 10),
    ("view_src", POINTER), ("view_offs", ctypes.c_size_t), ("data", POINTER), ("name", ctypes.c_char * 64),
]  # fmt: skip
Node = ctypes.POINTER(Tensor)
ModelParams, ContextParams, Batch = (
    _structure(name) for name in ("llama_model_params", "llama_context_params", "llama_batch")
)
Seen = ctypes.CFUNCTYPE(ctypes.c_bool, Node, ctypes.c_bool, POINTER)
Log = ctypes.CFUNCTYPE(None, INT, ctypes.c_char_p, POINTER)


class InitParams(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(CPU, name)
    function.restype, function.argtypes = result, arguments
    return function


ROPE_NUMBERS = [INT, INT, INT, *[FLOAT] * 6]  # n_dims, mode, n_ctx_orig, then base to beta_slow
model_defaults = _declare("llama_model_default_params", ModelParams)
context_defaults = _declare("llama_context_default_params", ContextParams)
load_model = _declare("llama_model_load_from_file", POINTER, ctypes.c_char_p, ModelParams)
new_context = _declare("llama_init_from_model", POINTER, POINTER, ContextParams)
free_model, free_context = _declare("llama_model_free", None, POINTER), _declare("llama_free", None, POINTER)
decode, trained_length = (
    _declare("llama_decode", INT, POINTER, Batch),
    _declare("llama_model_n_ctx_train", INT, POINTER),
)
served_length = _declare("llama_n_ctx", ctypes.c_uint32, POINTER)
encode, encodes = (
    _declare("llama_encode", INT, POINTER, Batch),
    _declare("llama_set_embeddings", None, POINTER, ctypes.c_bool),
)
new_batch = _declare("llama_batch_init", Batch, INT, INT, INT)
free_batch = _declare("llama_batch_free", None, Batch)
logits_of = _declare("llama_get_logits_ith", ctypes.POINTER(FLOAT), POINTER, INT)
name_of = _declare("ggml_op_desc", ctypes.c_char_p, Node)
init = _declare("ggml_init", POINTER, InitParams)
free = _declare("ggml_free", None, POINTER)
tensor_1d = _declare("ggml_new_tensor_1d", Node, POINTER, INT, ctypes.c_int64)
tensor_3d = _declare("ggml_new_tensor_3d", Node, POINTER, INT, *[ctypes.c_int64] * 3)
rope_ext = _declare("ggml_rope_ext", Node, POINTER, Node, Node, Node, *ROPE_NUMBERS)
rope_multi = _declare("ggml_rope_multi", Node, POINTER, Node, Node, Node, INT, INT * 4, *ROPE_NUMBERS[1:])
new_graph = _declare("ggml_new_graph", POINTER, POINTER)
expand = _declare("ggml_build_forward_expand", None, POINTER, Node)
compute = _declare("ggml_graph_compute_with_ctx", INT, POINTER, POINTER, INT)
set_log = _declare("llama_log_set", None, Log, POINTER)
get_data = _declare("ggml_backend_tensor_get", None, Node, POINTER, ctypes.c_size_t, ctypes.c_size_t)
memory_of = _declare("llama_get_memory", POINTER, POINTER)
F32, I32, MROPE = 0, 26, 8

MESSAGES: list[str] = []
"""What llama.cpp had to say since the model was loaded; the last error is the reason when it stops."""


@Log
def _log(level: int, text: bytes, _: Any) -> None:
    if level >= 3:
        MESSAGES.append(f"{level}{text.decode(errors='replace')}")


CPU.llama_backend_init()
set_log(_log, None)


class Stopped(RuntimeError):  # noqa: N818 (it is an answer)
    """llama.cpp returned an error; the sentence is its own."""


def stopped(doing: str) -> Stopped:
    said = [line[1:].strip() for line in MESSAGES if line.startswith("4") and line[1:].strip()]
    return Stopped(said[0] if said else f"{doing} failed, without a message")


def values(node: Any) -> np.ndarray:
    """The numbers of a float32 tensor without gaps."""
    count = int(np.prod(list(node.contents.ne)))
    held = (FLOAT * count)()
    get_data(node, ctypes.cast(held, POINTER), 0, 4 * count)
    return np.array(held, dtype=np.float32)


@dataclass
class Rotation:
    """One rotation of a model's graph: all that it was called with, and one row that went through it."""

    layer: int
    name: str
    width: int
    numbers: tuple[int, ...]
    factors: np.ndarray | None
    axes: bool
    row: np.ndarray
    turned: np.ndarray
    position: int


def turn(rotation: Rotation, x: np.ndarray, position: int) -> np.ndarray:
    """Rows turned by llama.cpp's rope operator, called as the model's graph calls it."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    memory = init(InitParams(x.nbytes * 4 + (1 << 20), None, False))
    try:
        a = tensor_3d(memory, F32, rotation.width, len(x), 1)
        ctypes.memmove(a.contents.data, x.ctypes.data, x.nbytes)
        b = tensor_1d(memory, I32, 4 if rotation.axes else 1)
        places = np.array([position, position, position, 0], dtype=np.int32)  # as text has them
        ctypes.memmove(b.contents.data, places.ctypes.data, 16 if rotation.axes else 4)
        c = None
        if rotation.factors is not None:
            c = tensor_1d(memory, F32, len(rotation.factors))
            ctypes.memmove(c.contents.data, rotation.factors.ctypes.data, rotation.factors.nbytes)
        dims, mode = rotation.numbers[1:3]
        if rotation.axes:
            out = rope_multi(memory, a, b, c, dims, (INT * 4)(*rotation.numbers[11:15]), mode, 0, 1.0, 1.0, 0, 1, 1, 1)
        else:
            out = rope_ext(memory, a, b, c, dims, mode, 0, 1.0, 1.0, 0, 1, 1, 1)
        for i, number in enumerate(rotation.numbers):
            out.contents.op_params[i] = number
        graph = new_graph(memory)
        expand(graph, out)
        if compute(memory, graph, 1):
            raise Stopped("ggml_graph_compute_with_ctx failed")
        return np.ctypeslib.as_array(ctypes.cast(out.contents.data, ctypes.POINTER(FLOAT)), x.shape).copy()
    finally:
        free(memory)


class Model:
    """A GGUF file that llama.cpp has loaded, with a context of the parameters that flags give."""

    def __init__(self, file: Path, flags: str = "", length: int | None = None, watched: bool = True):
        MESSAGES.clear()
        self.rotations: list[Rotation] = []
        self.scales: dict[int, float] = {}
        self._position, self._row = 0, np.zeros(0, dtype=np.float32)
        settings = model_defaults()
        if "n_gpu_layers" in dict(ModelParams._fields_):
            settings.n_gpu_layers = 0
        self.model = load_model(str(file).encode(), settings)
        if not self.model:
            raise stopped("loading the model")
        given = from_flags(f"llama-server -m {file} {flags}")[1] if flags else context_defaults()
        if length is not None:
            given.n_ctx = length
        elif not flags:
            given.n_ctx = 0
        given.n_batch = given.n_ubatch = 512
        given.n_threads = given.n_threads_batch = 1
        given.n_seq_max, given.kv_unified, given.flash_attn_type = 1, True, 0
        self._seen = Seen(self._look)
        if watched:
            given.cb_eval = ctypes.cast(self._seen, POINTER)
        else:
            given.type_k = given.type_v = F32
        self.context = new_context(self.model, given)
        if not self.context:
            error = stopped("making a context")
            free_model(self.model)
            raise error
        self.length = served_length(self.context)

    def close(self) -> None:
        free_context(self.context)
        free_model(self.model)

    def run(self, tokens: list[int], first: int, every: bool = False) -> None:
        """Decode some tokens from a position on; the last one's logits are kept, or those of all."""
        self._position = first
        batch = new_batch(len(tokens), 0, 1)
        token, place = (ctypes.cast(p, ctypes.POINTER(ctypes.c_int32)) for p in (batch.token, batch.pos))
        of, names = (ctypes.cast(p, ctypes.POINTER(ctypes.c_int32)) for p in (batch.n_seq_id, batch.logits))
        wanted = ctypes.cast(names, ctypes.POINTER(ctypes.c_int8))
        sequences = ctypes.cast(batch.seq_id, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
        batch.n_tokens = len(tokens)
        for i, value in enumerate(tokens):
            token[i], place[i], of[i], sequences[i][0] = value, first + i, 1, 0
            wanted[i] = int(every or i == len(tokens) - 1)
        code = decode(self.context, batch)
        free_batch(batch)
        if code:
            raise stopped(f"llama_decode ({code})")

    def logits(self, place: int, vocabulary: int) -> np.ndarray:
        """The logits after one token of the last run."""
        return np.ctypeslib.as_array(logits_of(self.context, place), (vocabulary,)).copy()

    def _look(self, node: Any, ask: bool, _: Any) -> bool:
        operator = name_of(node)
        tensor = node.contents
        name = tensor.name.decode(errors="replace")
        if operator == b"ROPE":
            if ask:  # its rows as they are now: what comes out may take their place
                self._row = np.empty(int(tensor.ne[0]), dtype=np.float32)
                get_data(tensor.src[0], self._row.ctypes.data_as(POINTER), 0, self._row.nbytes)
            else:
                self.rotations.append(self._rotation(node, name))
        elif operator in (b"SOFT_MAX", b"FLASH_ATTN_EXT") and ask:
            scale = np.array(tensor.op_params, dtype=np.int32).view(np.float32)[0]
            layer = re.search(r"-(\d+)", name)
            if layer and operator == b"SOFT_MAX" and name.startswith("kq"):
                self.scales[int(layer[1])] = float(scale)
        return True  # every node alone, so that those before it are done when it is asked about

    def _rotation(self, node: Any, name: str) -> Rotation:
        tensor, numbers = node.contents, tuple(node.contents.op_params)
        layer = re.search(r"-(\d+)", name)
        width = int(tensor.ne[0])
        factors = None
        if tensor.src[2]:
            factors = values(tensor.src[2])
        turned = np.empty(width, dtype=np.float32)
        get_data(node, turned.ctypes.data_as(POINTER), 0, turned.nbytes)
        axes = bool(numbers[2] & MROPE)
        return Rotation(
            int(layer[1]) if layer else -1, name, width, numbers, factors, axes, self._row, turned, self._position
        )


def from_flags(command: str) -> tuple[Any, Any]:
    """What llama.cpp's own parser of flags makes of a command: xllamacpp's parameters, and those of a context."""
    words = shlex.split(command)
    params = xllamacpp.CommonParams()
    inner = POINTER(id(params) + object.__basicsize__)  # the C++ object begins where Python's head ends
    parse = CPU._Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E
    parse.restype, parse.argtypes = ctypes.c_bool, [INT, POINTER, POINTER, INT, POINTER]
    held = (ctypes.c_char_p * (len(words) + 1))(*[word.encode() for word in words], None)
    if not parse(len(words), ctypes.cast(held, POINTER), inner, SERVER, None):
        raise stopped(f"parsing {command}")
    to_context = CPU._Z30common_context_params_to_llamaRK13common_params
    to_context.restype, to_context.argtypes = ContextParams, [POINTER]
    return params, to_context(inner)
