"""Downloads from the Hugging Face Hub through huggingface_hub: the only code here that touches a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from liveshape.errors import InputError
from liveshape.packages import need

# owner/name, or owner/name/file.gguf.
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(/[\w./-]+\.gguf)?")
_FILES = (".gguf", ".pte", ".bin", ".safetensors")
# Other formats of the same weights are not downloaded.
_WANTED = ["*.json", "*.safetensors", "*.jinja"]


def is_hub_name(source: str) -> bool:
    """Whether a source may be a Hub repo id; if its first part is a local folder, it is a mistyped path.

    >>> is_hub_name("HuggingFaceTB/SmolLM2-135M"), is_hub_name("models/llama.gguf"), is_hub_name("/tmp/model")
    (True, False, False)
    """
    owner, *rest = source.split("/")
    one_of_many = len(rest) > 1
    return bool(_NAME.fullmatch(source)) and (one_of_many or not source.endswith(_FILES)) and not Path(owner).exists()


def fetched(name: str) -> Path:
    """Download a model of the Hub, unless it is in the Hub's own cache; returns its folder or GGUF file.

    Example: `fetched("HuggingFaceTB/SmolLM2-135M-Instruct")`.
    """
    need("huggingface_hub", extra="hub", what=f"{name}: there is no such folder or file; fetching it from the Hub")
    import huggingface_hub as hub

    try:
        return _fetched(hub, name)
    except InputError:
        raise
    except Exception as error:  # huggingface_hub raises many unrelated types: network, Hub, disk
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"{name}: there is no such folder or file here, and the Hub does not give it "
            f"({type(error).__name__}: {reason}); where there is a network: hf download {name} --local-dir "
            f"{name.split('/')[1]}, and name that folder; for a model that is private or gated: hf auth login"
        ) from error


def _fetched(hub: Any, name: str) -> Path:
    owner, model, *file = name.split("/")
    repository = f"{owner}/{model}"
    if file:
        return Path(hub.hf_hub_download(repository, "/".join(file)))
    folder = Path(hub.snapshot_download(repository, allow_patterns=_WANTED))
    if any(folder.glob("*.safetensors")):
        return folder
    files = [each for each in hub.list_repo_files(repository) if each.endswith(".gguf")]
    if len(files) == 1:
        return Path(hub.hf_hub_download(repository, files[0]))
    if files:
        raise InputError(
            f"{name} has {len(files)} GGUF files, name one of them:\n  "
            + "\n  ".join(f"{repository}/{each}" for each in files)
        )
    raise InputError(f"{name} has neither safetensors nor GGUF files, which is what can be converted")
