"""Start llama.cpp's server out of the wheel `xllamacpp`, which has it inside.

    python tools/served/llama_cpp.py --model model.gguf --port 8080 -c 4096 --rope-scaling yarn --rope-scale 4

The flags are those of `llama-server`, as far as they are here; the wheel has its parameters and no reader of flags, so
that this one sets what llama.cpp's own would set. ``--exact`` is ours: keys and values in float32, and attention
without the flash kernel, which rounds to float16.
"""

import argparse
import threading

import xllamacpp

SCALINGS = {"none": 0, "linear": 1, "yarn": 2}

flags = argparse.ArgumentParser(allow_abbrev=False)
flags.add_argument("-m", "--model", required=True)
flags.add_argument("--port", type=int, default=8080)
flags.add_argument("-c", "--ctx-size", type=int)
flags.add_argument("-t", "--threads", type=int, default=1)
flags.add_argument("-np", "--parallel", type=int, default=1)
flags.add_argument("--rope-scaling", choices=SCALINGS)
flags.add_argument("--rope-scale", type=float)
flags.add_argument("--rope-freq-base", type=float)
flags.add_argument("--yarn-orig-ctx", type=int)
flags.add_argument("--exact", action="store_true")
given = flags.parse_args()

params = xllamacpp.CommonParams()
params.model.path, params.port = given.model, given.port
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
params.n_parallel, params.endpoint_metrics = given.parallel, True
if given.ctx_size is not None:
    params.n_ctx = given.ctx_size
if given.rope_scaling is not None:
    params.rope_scaling_type = SCALINGS[given.rope_scaling]
if given.rope_scale is not None:
    params.rope_freq_scale = 1 / given.rope_scale
if given.rope_freq_base is not None:
    params.rope_freq_base = given.rope_freq_base
if given.yarn_orig_ctx is not None:
    params.yarn_orig_ctx = given.yarn_orig_ctx
if given.exact:
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
