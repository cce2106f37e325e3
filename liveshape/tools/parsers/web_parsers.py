"""Argument parser of `web`."""

from __future__ import annotations

import argparse

from liveshape.graph.activation_kinds import AUTO
from liveshape.tools.parsers.flags import SOURCES, Add, add_activations, add_conversion, conversion_of, port

_WEB = f"""\
The folder has a page, the model and the runtime, about 20 MB beside the model (5 MB as servers compress it). Any web
server can serve it, by https and with HTTP Range; nothing is installed, and nothing that is written there leaves the
browser. A language model gets a page to chat, or to continue text where it has no chat template; any other program a
form: live sizes as sliders, inputs from random numbers, .npy files or pictures, outputs as numbers, pictures and plots.
MODEL is a folder of `liveshape export`, a .pte, or the name of a shipped model: story, demo. {SOURCES}
Browsers: Chrome and Edge 137, Firefox 153, Safari 27. --serve answers this machine alone unless --host says otherwise.

examples:
  liveshape web story --serve                        look at it: open the address that is printed
  liveshape web SmolLM2-135M-Instruct.Q4_K_M.gguf -o site
  liveshape web mobilenet.pte -o site --serve --port 9000
  liveshape web model-folder -o site --max-context 4096 --half-cache
  python -m http.server -d site                      serves it, too, but without HTTP Range: a model is loaded whole"""


def add_commands(add: Add) -> None:
    """Add the subcommand's parser.

    Example: `add_commands(add)`, before `parser.parse_args()`.
    """
    making = add("web", "make a web page that runs a model on the GPU of whoever opens it", _WEB, _run_web, False)
    making.add_argument("model", metavar="MODEL", help="a folder, a .pte, a shipped model, or what is converted")
    making.add_argument("-o", "--out", metavar="FOLDER", help="where the site goes")
    making.add_argument("--force", action="store_true", help="also into a folder that has other files, which stay")
    making.add_argument("--serve", action="store_true", help="serve the site on this machine until Ctrl-C")
    making.add_argument("--host", metavar="ADDRESS", help="of --serve: where to listen (default 127.0.0.1)")
    making.add_argument("--port", metavar="N", type=port, help="of --serve: 0 is any (default 8080)")
    making.add_argument("--runtime", metavar="FOLDER", help="what `make web` built (default: as installed)")
    making.add_argument("--method", metavar="NAME", help="of a program: which of its methods (default forward)")
    making.add_argument("--half-cache", action="store_true", help="keep the KV cache in float16: half of its memory")
    add_activations(making, AUTO)
    add_conversion(making)


# Lazy import: `--help` loads no command's modules.


def _run_web(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.web import web

    return web(
        arguments.model,
        out=arguments.out,
        serve=arguments.serve,
        host=arguments.host,
        port=arguments.port,
        runtime=arguments.runtime,
        method=arguments.method,
        force=arguments.force,
        half_cache=arguments.half_cache,
        activations=arguments.activations,
        conversion=conversion_of(arguments),
    )
