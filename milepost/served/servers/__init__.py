"""One file for each server, and what all of them share: `client` sends, `server` says what is asked of any of them."""

from __future__ import annotations

from milepost.served.servers.client import BUSY, Client, NotJsonError, ServerError
from milepost.served.servers.llama_cpp import LlamaCppServer
from milepost.served.servers.mlx_lm import MlxLm
from milepost.served.servers.ollama import Ollama
from milepost.served.servers.openai import OpenAI
from milepost.served.servers.server import Server
from milepost.served.servers.sglang import SGLangServer
from milepost.served.servers.transformers_serve import TransformersServe
from milepost.served.servers.vllm import VLLMServer
from milepost.served.servers.words import Words

SERVERS: tuple[type[Server], ...] = (LlamaCppServer, SGLangServer, VLLMServer, Ollama, TransformersServe, MlxLm, OpenAI)
"""In the order in which they are recognised: those with paths of their own first, any OpenAI server last."""


def find_server(client: Client, model: str | None = None, words: Words | None = None) -> Server:
    """The server at an address, found by asking for what only it has."""
    strange: list[ServerError] = []
    for kind in SERVERS:
        try:
            recognised = kind.recognise(client)
        except NotJsonError as error:
            strange.append(error)
            continue
        except ServerError as error:
            status = error.status
            if status is None or status in (401, 403, *BUSY) or 300 <= status < 400:
                raise  # a server that is still loading its model would be taken for another one
            continue
        except (AttributeError, KeyError, TypeError):  # an answer in another form
            continue
        if recognised:
            return kind(client, model, words)
    if strange:
        raise strange[0]
    raise ServerError(
        f"{client.url} is none of {', '.join(kind.name for kind in SERVERS)}: nothing that these servers answer was "
        "found there"
    )
