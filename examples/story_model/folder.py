"""The student as a Hugging Face folder: config.json, tokenizer files and a safetensors file written by hand."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from stories import SEPARATOR
from student import Config, Student
from tokenize_corpus import END_ID

DTYPES = {torch.float16: ("F16", np.float16), torch.float32: ("F32", np.float32)}


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """A header length, a JSON header, the bytes; renamed into place, so that a killed run leaves the last good file."""
    name, numpy_dtype = DTYPES[dtype]
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blobs, start = [], 0
    for key, tensor in tensors.items():
        blob = tensor.detach().cpu().numpy().astype(numpy_dtype).tobytes()
        header[key] = {"dtype": name, "shape": list(tensor.shape), "data_offsets": [start, start + len(blob)]}
        blobs.append(blob)
        start += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_suffix(".part")
    part.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *blobs]))
    part.replace(path)


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file that `write_safetensors` wrote, in float32."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    dtypes = dict(DTYPES.values())
    tensors = {}
    for key, item in header.items():
        if key != "__metadata__":
            start, stop = (8 + size + offset for offset in item["data_offsets"])
            array = np.frombuffer(data[start:stop], dtype=dtypes[item["dtype"]]).reshape(item["shape"])
            tensors[key] = torch.from_numpy(array.astype(np.float32))
    return tensors


def write_folder(folder: Path, model: Student, tokenizer: Path) -> None:
    """Everything `liveshape export FOLDER` reads; may be called again and again during training."""
    config: Config = model.config
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", dict(model.state_dict()), torch.float16)
    ids = {"bos_token_id": END_ID, "eos_token_id": END_ID}
    fixed = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "head_dim": config.head_dim,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_scaling": None,
        "torch_dtype": "float16",
        **ids,
    }
    (folder / "config.json").write_text(json.dumps(asdict(config) | fixed, indent=2))
    sampling = {"do_sample": True, "temperature": 0.8, "top_p": 0.95}
    (folder / "generation_config.json").write_text(json.dumps(ids | sampling, indent=2))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SEPARATOR, "eos_token": SEPARATOR}
    more = {"add_bos_token": True, "model_max_length": config.max_position_embeddings}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | more, indent=2))
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
