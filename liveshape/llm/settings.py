"""generation_config.json: the model's default sampling settings and EOS tokens, which the caller's options override."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from liveshape.disk import read_bytes
from liveshape.errors import FormatError, InputError
from liveshape.llm.sampling_settings import Sampling

_MOST_IDS = 1 << 31
# The defaults of transformers where a file has only `do_sample`.
_SAMPLED = {"temperature": 1.0, "top_k": 50}


@dataclass(frozen=True)
class GenerationSettings:
    """Default sampling settings and EOS ids of a model; greedy without a file.

    Example: `GenerationSettings.read(Path("folder/generation_config.json")).sampling(temperature=0.7)`.
    """

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def read(cls, path: Path) -> GenerationSettings:
        """Read generation_config.json, if it exists. Its temperature counts only with `do_sample`."""
        document = read_json(path)
        ends = document.get("eos_token_id")
        values: dict[str, Any] = {
            "bos_id": _token_id(path, "bos_token_id", document.get("bos_token_id")),
            "eos_ids": tuple(
                found
                for each in (ends if isinstance(ends, list) else [ends])
                if (found := _token_id(path, "eos_token_id", each)) is not None
            ),
        }
        if not isinstance(document.get("do_sample"), bool | None):
            raise FormatError(f"{path}: do_sample is true or false, it has {_shown(document['do_sample'])}")
        wanted = ["repetition_penalty"]
        if document.get("do_sample"):
            wanted += ["temperature", "top_k", "top_p", "min_p"]
            values |= _SAMPLED
        values |= {name: document[name] for name in wanted if document.get(name) is not None}
        try:
            Sampling(**{name: values[name] for name in wanted if name in values})
        except InputError as error:
            raise FormatError(f"{path}: {error}; correct the file") from error
        return cls(**values)

    def sampling(
        self,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        seed: int | None = None,
    ) -> Sampling:
        """The sampling settings: each as given, or else the model's default. A seed of None or -1 is random.

        top-k, top-p or min-p imply sampling: the temperature is then 1 where nothing else sets it.

        Example: `settings.sampling(top_p=0.9).temperature == 1.0`.
        """
        if temperature is None and not self.temperature and any(each is not None for each in (top_k, top_p, min_p)):
            temperature = 1.0
        if isinstance(seed, Integral) and seed < -1:
            raise InputError(f"seed must be a number from 0 on, or -1 for one that is drawn; {seed} was given")
        return Sampling(
            temperature=self.temperature if temperature is None else temperature,
            top_k=self.top_k if top_k is None else top_k,
            top_p=self.top_p if top_p is None else top_p,
            min_p=self.min_p if min_p is None else min_p,
            repetition_penalty=self.repetition_penalty if repetition_penalty is None else repetition_penalty,
            frequency_penalty=0.0 if frequency_penalty is None else frequency_penalty,
            presence_penalty=0.0 if presence_penalty is None else presence_penalty,
            seed=secrets.randbits(31) if seed is None or seed == -1 else seed,
        )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; empty if there is no file.

    Example: `read_json(folder / "tokenizer_config.json").get("bos_token")`.
    """
    if not path.exists():
        return {}
    stored = read_bytes(path)
    try:
        document = json.loads(stored.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deep
        raise FormatError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise FormatError(f"{path}: an object is expected, this is a {type(document).__name__}")
    return document


def _token_id(path: Path, field: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_IDS):
        return value
    raise FormatError(f"{path}: {field} is the number of a token, it has {_shown(value)}")


def _shown(value: Any) -> str:
    return f"{value!r}"[:60]
