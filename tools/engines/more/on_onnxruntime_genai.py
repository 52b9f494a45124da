"""onnxruntime-genai on the CPU: its own builder makes the ONNX file of a small model, and onnxruntime turns with it.

In the file, the rotation is part of GroupQueryAttention, or a RotaryEmbedding or MRotaryEmbedding before it. The tables
of cos and sin that the node has (of longrope, the branch of an If that the length chooses, which onnxruntime runs) are
given to onnxruntime's own operator with the node's attributes, in a graph of this one node.

Stand-ins: weights (random ones of transformers); the rotation inside of GroupQueryAttention (RotaryEmbedding, with the
same tables).
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from onnxruntime_genai.models import builder
from probe import Layer, NotMeasured, run, softmax_over
from real_keys import completed, write_folder
from stand_ins import configs_of_authors
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)


class InternLM2DecoderLayer(torch.nn.Module):
    """A layer of InternLM2 as its authors' code names the weights; their class is in their repository alone."""

    def __init__(self, config: Any):
        super().__init__()
        width, heads = config.hidden_size, config.num_attention_heads
        rows = (heads + 2 * config.num_key_value_heads) * width // heads
        linear = partial(torch.nn.Linear, bias=False)
        self.attention = torch.nn.ModuleDict({"wqkv": linear(width, rows), "wo": linear(width, width)})
        sizes = {"w1": (width, 64), "w3": (width, 64), "w2": (64, width)}
        self.feed_forward = torch.nn.ModuleDict({name: linear(*size) for name, size in sizes.items()})
        self.attention_norm, self.ffn_norm = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)


class InternLM2ForCausalLM(PreTrainedModel):
    """The weights of InternLM2."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.model = torch.nn.Module()
        self.model.tok_embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = torch.nn.ModuleList(InternLM2DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.model.norm = torch.nn.RMSNorm(config.hidden_size)
        self.output = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


TURNS = ("GroupQueryAttention", "RotaryEmbedding", "MRotaryEmbedding")
COS = {"GroupQueryAttention": 7, "RotaryEmbedding": 2, "MRotaryEmbedding": 2}
"""The place of the table of cosines among a node's inputs; that of sines follows."""


def measure(case: dict[str, Any]) -> list[Layer]:
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / "source", Path(place) / "onnx"
        save(completed(case["config"]), folder)
        file = build(folder, out)
        model = onnx.load(str(file), load_external_data=True)
        head = json.loads((out / "genai_config.json").read_text())["model"]["decoder"]["head_size"]
    text = case["config"].get("text_config", case["config"])
    count = int(text.get("num_hidden_layers") or text.get("n_layer"))
    graph = Graph(model, head)
    return [_layer(graph, number) for number in range(count)]


def save(config: dict[str, Any], folder: Path) -> None:
    """A checkpoint of a config with random weights; config.json is the config as it was given."""
    arch = config["architectures"][0]
    with (Path(builder.__file__)).open() as file:
        if f'"{arch}"' not in file.read():
            raise NotMeasured(f"no model class: {arch}")
    given = copy.deepcopy(config)  # a config class may write into it
    name = given.pop("model_type")
    try:
        made = AutoConfig.for_model(name, **given)
    except ValueError as error:
        if "Unrecognized model identifier" in str(error):
            raise NotMeasured(f"transformers has no class that would write the weights: {name}") from None
        raise
    reason: Exception | None = None
    for kind in (AutoModelForCausalLM, AutoModelForImageTextToText):
        try:
            model = kind.from_config(made, dtype=torch.float32)
            break
        except ValueError as error:
            reason = reason or error
    else:
        raise NotMeasured(f"transformers builds no weights: {reason}")
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(64)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordPiece(words, unk_token="w0"))).save_pretrained(folder)
    write_folder(config, folder)


def build(folder: Path, out: Path) -> Path:
    """What `python -m onnxruntime_genai.models.builder -i FOLDER -o OUT -p fp32 -e cpu` does."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        names = ("", str(folder), str(out), "fp32", "cpu", str(out / "cache"))
        try:
            options = builder.parse_extra_options(*names, ["hf_token=false"])
            builder.create_model(*names, **options)
        except NotImplementedError as error:
            if "model is not currently supported" in str(error):
                raise NotMeasured(f"no model class: {error}") from None
            raise
    return out / "model.onnx"


class Graph:
    """An ONNX model: its nodes that turn, by layer, and the tables that they are given."""

    def __init__(self, model: onnx.ModelProto, head: int):
        self.model, self.head = model, head
        self.tables = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.turning: dict[int, list[onnx.NodeProto]] = {}
        self.attending: dict[int, onnx.NodeProto] = {}
        self.turns: dict[tuple[str, ...], Any] = {}
        for node in model.graph.node:
            layer = re.search(r"layers\.(\d+)", node.name)
            if layer and node.op_type == "GroupQueryAttention":
                self.attending[int(layer[1])] = node
            if layer and node.op_type in TURNS and (node.op_type != TURNS[0] or _attributes(node).get("do_rotary")):
                self.turning.setdefault(int(layer[1]), []).append(node)

    @cache  # noqa: B019 (a graph lives as long as its case)
    def table(self, name: str, length: int) -> np.ndarray:
        """A table as it is for a text of some length."""
        if name in self.tables:
            return self.tables[name]
        wanted, nodes = [name], []
        while wanted:
            made = self.makers.get(wanted.pop())
            if made is not None and made not in nodes:
                nodes.insert(0, made)
                wanted += made.input
        held = [tensor for tensor in self.model.graph.initializer if any(tensor.name in n.input for n in nodes)]
        given = [value for value in self.model.graph.input if any(value.name in n.input for n in nodes)]
        output = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "table", given, [output], held)
        mask = {value.name: np.ones((1, length), dtype=np.int64) for value in given}
        if set(mask) != {"attention_mask"}:
            raise ValueError(f"the table {name} depends on {sorted(mask)}")
        found = _session(self.model, graph).run([name], mask)[0]
        return np.asarray(found)

    def turn(self, node: onnx.NodeProto) -> Any:
        """The rotation of a node; nodes with the same tables and attributes share one."""
        place, own = COS[node.op_type], _attributes(node)
        key = (node.op_type, *node.input[place : place + 2], str(sorted(own.items())))

        def turned(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
            cos, sin = (self.table(name, length or 2) for name in key[1:3])
            if position >= len(cos):
                raise ValueError(f"the tables have {len(cos)} positions")
            row = {"cos": cos[position : position + 1], "sin": sin[position : position + 1]}
            return _rotate(self.model, node, own, np.ascontiguousarray(x, dtype=np.float32), row)

        return self.turns.setdefault(key, turned)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _session(model: onnx.ModelProto, graph: onnx.GraphProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _layer(graph: Graph, number: int) -> Layer:
    nodes = graph.turning.get(number)
    if not nodes:
        return Layer(None)
    shapes = {tuple(node.input[COS[node.op_type] : COS[node.op_type] + 2]) for node in nodes}
    if len(shapes) > 1:
        raise ValueError(f"queries and keys of layer {number} have different tables: {shapes}")
    attending = graph.attending.get(number)
    softmax = window = None
    head = graph.head
    if attending is not None:
        more = _attributes(attending)
        softmax = softmax_over(float(more["scale"]), head) if more.get("scale") else None
        window = more["local_window_size"] if more.get("local_window_size", -1) > 0 else None
    cos = nodes[0].input[COS[nodes[0].op_type]]
    limit = max(len(graph.table(cos, length)) for length in (2, 1 << 20))
    return Layer(graph.turn(nodes[0]), head, softmax, window, limit)


def _rotate(model: Any, node: Any, own: dict[str, Any], x: np.ndarray, row: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of x as heads of one token at the only position of the table."""
    size, dims = x.shape[1], 2 * row["cos"].shape[1]
    multi = node.op_type == "MRotaryEmbedding"
    interleaved = own.get("rotary_interleaved" if node.op_type == "GroupQueryAttention" else "interleaved", 0)
    options: dict[str, Any] = {"interleaved": interleaved, "num_heads": len(x)}
    if dims != size:
        options["rotary_embedding_dim"] = dims
    if multi:
        options |= {name: own[name] for name in ("mrope_section", "mrope_layout") if name in own}
    kind = "MRotaryEmbedding" if multi else "RotaryEmbedding"
    made = helper.make_node(kind, ["x", "places", "cos", "sin"], ["y"], domain="com.microsoft", **options)
    places = np.zeros((3, 1, 1) if multi else (1, 1), dtype=np.int64)
    given = {"x": x.reshape(1, 1, -1), "places": places, "cos": row["cos"], "sin": row["sin"]}
    floats = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, given[n].shape) for n in ("x", "cos", "sin")]
    inputs = [*floats, helper.make_tensor_value_info("places", onnx.TensorProto.INT64, places.shape)]
    graph = helper.make_graph(
        [made], "turn", inputs, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    )
    out = _session(model, graph).run(["y"], given)[0]
    return np.asarray(out).reshape(x.shape)


if __name__ == "__main__":
    torch.set_num_threads(1)
    configs_of_authors()
    InternLM2ForCausalLM.config_class = type(AutoConfig.for_model("internlm2"))
    AutoModelForCausalLM.register(InternLM2ForCausalLM.config_class, InternLM2ForCausalLM)
    run(measure)
