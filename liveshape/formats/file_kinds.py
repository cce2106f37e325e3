"""What a file is that is no model: a pointer, a page, a download that did not end, a file of another program."""

from __future__ import annotations

import codecs

HEAD = 256  # bytes that `foreign_kind` needs

_AGAIN = "download or copy it again"
CUT_SHORT = f"; the file is damaged, or its download did not end: {_AGAIN}"  # ends a message
_EXPORT = "export the PyTorch module instead: liveshape export module:function -o FOLDER"
_UNFINISHED = (".incomplete", ".part", ".partial", ".crdownload", ".download", ".aria2")
# By the first bytes of a file.
_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (
        b"version https://git-lfs",
        "a Git LFS pointer, which stands for the file: `git lfs pull` in its folder fetches the file, or `hf download`",
    ),
    (
        b"GGUF",
        "a GGUF file; make a program of it: liveshape export FILE -o FOLDER, or talk to it at once: "
        "liveshape chat FILE",
    ),
    (b"PK\x03\x04", f"a zip archive, such as torch.save writes; {_EXPORT}"),
    (b"\x80\x02", f"a pickle, such as torch.save writes; {_EXPORT}"),
    (b"\x89HDF", f"an HDF5 file, as Keras writes; {_EXPORT}"),
    (b"\x93NUMPY", "an array of numpy, which is an input: liveshape run PROGRAM --inputs FILE"),
    (b"lmgg", "a GGML file of before GGUF, which llama.cpp converts"),
    (b"tjgg", "a GGML file of before GGUF, which llama.cpp converts"),
)
_PAGES = (b"<!doctype", b"<html", b"<?xml")
_PAGE = f"a web page in place of the file: {_AGAIN}; on the Hub the address has /resolve/ where the page has /blob/"


def foreign_name(name: str) -> str | None:
    """What a file is, and what to do, if its name tells; None if it does not.

    >>> foreign_name("model.gguf.part"), foreign_name("model.gguf")
    ('a download that did not end: let it end, or download it again', None)
    """
    if name.endswith(_UNFINISHED):
        return "a download that did not end: let it end, or download it again"
    return f"an ONNX file; {_EXPORT}" if name.endswith(".onnx") else None


def foreign_kind(head: bytes) -> str | None:
    """What a file is, and what to do, if its first bytes tell; None if they do not.

    >>> foreign_kind(b"")
    'empty: download or copy it again'
    """
    if not head:
        return f"empty: {_AGAIN}"
    for beginning, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind
    if head.lstrip()[:9].lower().startswith(_PAGES):
        return _PAGE
    if head[4:8] == b"TFL3":
        return f"a TensorFlow Lite file; {_EXPORT}"
    if head[8:9] == b"{" and not head[6:8].strip(b"\0"):
        return "a safetensors file: name the folder that has its config.json and tokenizer.json"
    if not any(head):
        return f"full of zeros: {_AGAIN}"
    return "a text" if _is_text(head[:64]) else None


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # its last character may be cut
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte in b"\t\n\r" for byte in head)
