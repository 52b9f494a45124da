"""Start llama.cpp's server out of the wheel `xllamacpp`, which has it inside: its parameters are JSON, in the argument.

    .served/llama/bin/python tools/served/llama_cpp.py '{"path": "model.gguf", "port": 8080, "n_ctx": 4096}'

``exact`` keeps keys and values in float32, and attends without the flash kernel, which rounds to float16.
"""

import json
import sys
import threading

import xllamacpp

given = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = given.pop("path")
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.pop("threads", 1)
params.endpoint_metrics = True
if given.pop("exact", False):
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
for name, value in given.items():
    if not hasattr(params, name):
        sys.exit(f"llama.cpp has no parameter {name}")
    setattr(params, name, value)
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
