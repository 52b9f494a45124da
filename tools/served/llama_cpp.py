"""Start llama.cpp's server out of the wheel `xllamacpp`, which has it inside.

    python tools/served/llama_cpp.py -m model.gguf --port 8080 -c 4096 --rope-scaling yarn --rope-scale 4

The flags are those of `llama-server`, all of them: they are read by llama.cpp's own reader, which is in the wheel's
library, into the parameters that a `CommonParams` of the wheel holds.
"""

import ctypes
import sys
import threading

import xllamacpp
from xllamacpp import xllamacpp as library

SERVER = 12
"""LLAMA_EXAMPLE_SERVER: whose flags are read."""
PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
"""bool common_params_parse(int, char **, common_params &, llama_example, void (*)(int, char **))"""

params = xllamacpp.CommonParams()
held = id(params) + object.__basicsize__  # the C++ parameters come after the head of the Python object
params.n_predict, params.n_ctx = 1234567, 7654321  # the first two of them
if list((ctypes.c_int * 2).from_address(held)) != [1234567, 7654321]:
    sys.exit("this xllamacpp holds its parameters elsewhere: use the version that the Makefile names")
params.n_predict, params.n_ctx = -1, 0
words = ["llama-server", *sys.argv[1:]]
parse = getattr(ctypes.CDLL(library.__file__), PARSE)
parse.restype = ctypes.c_bool
given = (ctypes.c_char_p * (len(words) + 1))(*map(str.encode, words), None)
if not parse(len(words), given, ctypes.c_void_p(held), SERVER, None):
    sys.exit(2)
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
