"""Train the shipped story model inside a time budget, the last part quantization-aware, on 4-bit weights.

Run: python train.py --work FOLDER_OF_tokenize_corpus --out RESULT --minutes 7.5
RESULT gets the Hugging Face folder, losses.json and samples.txt, and is whole after every save.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from folder import read_safetensors, write_folder, write_safetensors
from fourbit import four_bits
from samples import write_samples
from student import Config, Student
from tokenize_corpus import END_ID, UNFINISHED_ID

LARGEST_FILES = 6_000_000
# Seconds kept for the last losses, the samples and the last save.
RESERVE = 25.0


class Windows:
    """Endless batches of (batch, length + 1) ids that start where a story starts, shuffled, all on the device."""

    def __init__(self, path: Path, length: int, device: str, seed: int) -> None:
        ids = np.fromfile(path, dtype=np.uint16)
        starts = np.flatnonzero(ids == END_ID)
        starts = starts[starts + length < len(ids)]
        if len(starts) == 0:
            raise ValueError(f"{path}: {len(ids)} tokens hold no window of {length + 1}; sample a larger corpus")
        self.ids = torch.from_numpy(ids.astype(np.int32)).to(device)
        self.starts = torch.from_numpy(starts).to(device)
        self.span = torch.arange(length + 1, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.queue = self.starts[:0]

    def next(self, batch: int) -> torch.Tensor:
        """The next `batch` windows of the shuffled stories."""
        while len(self.queue) < batch:
            order = torch.randperm(len(self.starts), generator=self.generator, device=self.starts.device)
            self.queue = torch.cat([self.queue, self.starts[order]])
        starts, self.queue = self.queue[:batch], self.queue[batch:]
        return self.ids[starts[:, None] + self.span].long()


def rate(progress: float, peak: float, warmup: float = 0.02, floor: float = 0.02) -> float:
    """Learning rate at a share of the time: linear warm-up, then a cosine to `floor` of the peak."""
    if progress < warmup:
        return peak * max(progress / warmup, 0.01)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - warmup) / (1 - warmup))))
    return peak * (floor + (1 - floor) * cosine)


class Training:
    """A student, its optimizer and its clock."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.began = time.monotonic()
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision("high")
        self.config = Config(**json.loads(args.config))
        self.model = Student(self.config).to(self.device)
        self.parameters = sum(weight.numel() for weight in self.model.parameters())
        files = self.config.file_bytes(self.parameters) + (args.work / "tokenizer.json").stat().st_size
        self.say(f"{self.parameters / 1e6:.2f} M parameters, about {files / 1e6:.2f} MB as program and tokenizer")
        assert files < LARGEST_FILES, f"{files} bytes exceed {LARGEST_FILES}; choose a smaller config"
        length = self.config.max_position_embeddings
        self.train = Windows(args.work / "train.bin", length, self.device, args.seed)
        held_out = Windows(args.work / "validation.bin", length, self.device, 0)
        self.validation = [held_out.next(args.batch) for _ in range(args.validation_batches)]
        matrices = [weight for weight in self.model.parameters() if weight.dim() == 2]
        vectors = [weight for weight in self.model.parameters() if weight.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), fused=self.device == "cuda")
        self.forward = self.compiled()
        tokens = json.loads((args.work / "tokens.json").read_text())
        assert tokens["vocabulary"] <= self.config.vocab_size, f"{tokens} exceeds {self.config}"
        self.record: dict[str, object] = {
            "config": asdict(self.config),
            "parameters": self.parameters,
            "tokens": tokens,
            "train_windows": len(self.train.starts),
            "curve": [],
        }

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def autocast(self) -> torch.autocast | nullcontext[None]:
        return torch.autocast("cuda", torch.bfloat16) if self.device == "cuda" else nullcontext()

    def compiled(self) -> Callable[[torch.Tensor, int], torch.Tensor]:
        """The loss, compiled and tried once where there is a GPU; eager if that fails."""
        if self.device != "cuda" and not self.args.compile:
            return self.model.loss
        try:
            loss = torch.compile(self.model.loss, dynamic=False)
            with self.autocast():
                loss(self.train.next(self.args.batch), UNFINISHED_ID).backward()
            with torch.no_grad(), self.autocast():
                loss(self.train.next(self.args.batch), UNFINISHED_ID)
            self.say("compiled")
        except Exception as error:
            self.say(f"torch.compile failed, going on without: {error!r}"[:600])
            loss = self.model.loss
        self.model.zero_grad(set_to_none=True)
        return loss

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss over the held-out windows."""
        with self.autocast():
            losses = [self.forward(tokens, UNFINISHED_ID).float() for tokens in self.validation]
        return torch.stack(losses).mean().item()

    def step(self, progress: float, rounded: bool, scale: float) -> torch.Tensor:
        """One update; with `rounded`, quantization-aware."""
        for group in self.optimizer.param_groups:
            group["lr"] = scale * rate(progress, self.args.rate)
        tokens = self.train.next(self.args.batch)
        with four_bits(self.model) if rounded else nullcontext():
            with self.autocast():
                loss = self.forward(tokens, UNFINISHED_ID)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def save(self, **numbers: object) -> None:
        """Write the result folder as it stands."""
        self.record.update(numbers)
        write_folder(self.args.out, self.model, self.args.work / "tokenizer.json")
        (self.args.out / "losses.json").write_text(json.dumps(self.record, indent=1))

    def run(self) -> None:
        """Train until the budget ends, then measure, save and write samples."""
        start = time.monotonic()
        budget = max(1.0, 60 * self.args.minutes - (start - self.began) - self.args.reserve)
        rounded, scale, steps, last_save = False, 1.0, 0, start
        good = {name: value.clone() for name, value in self.model.state_dict().items()}
        curve = self.record["curve"]
        assert isinstance(curve, list)
        while (progress := (time.monotonic() - start) / budget) < 1 and steps < self.args.steps:
            if not rounded and progress >= 1 - self.args.rounded_share:
                before = self.measure()
                self.say(f"step {steps}: before rounding {before}")
                self.save(before_rounding=before)
                weights = dict(self.model.state_dict())
                write_safetensors(self.args.work / "before_rounding.safetensors", weights, torch.float32)
                rounded = True
            loss = self.step(progress, rounded, scale)
            steps += 1
            if steps % self.args.log_every:
                continue
            value = loss.item()
            seconds = time.monotonic() - start
            tokens = steps * self.args.batch * self.config.max_position_embeddings
            if not math.isfinite(value):
                scale /= 2
                self.say(f"step {steps}: loss {value}; back to the last good weights at {scale} of the rate")
                self.model.load_state_dict(good)
                self.optimizer.state.clear()
                continue
            good = {name: weight.clone() for name, weight in self.model.state_dict().items()}
            curve.append({"step": steps, "seconds": round(seconds, 1), "train": round(value, 4), "rounded": rounded})
            self.say(f"step {steps}: loss {value:.4f}, {tokens / seconds / 1e6:.2f} M tokens/s, rounded {rounded}")
            if time.monotonic() - last_save > self.args.save_seconds:
                measured = self.measure()
                curve[-1].update(measured)
                self.say(f"step {steps}: {measured}")
                self.save(steps=steps, tokens_seen=tokens)
                last_save = time.monotonic()
        tokens = steps * self.args.batch * self.config.max_position_embeddings
        self.save(steps=steps, tokens_seen=tokens)
        # What ships is the float16 file, so the last numbers are of its weights.
        self.model.load_state_dict(read_safetensors(self.args.out / "model.safetensors"), strict=True)
        final = self.measure()
        self.say(f"step {steps}: final {final}")
        self.save(final=final, seconds=round(time.monotonic() - self.began, 1))
        with four_bits(self.model):
            write_samples(self.args.out / "samples.txt", self.model, self.args.work / "tokenizer.json")
        self.say("done")

    def measure(self) -> dict[str, float]:
        """Held-out loss with full and with 4-bit weights."""
        full = self.validate()
        with four_bits(self.model):
            return {"validation": round(full, 4), "validation_4bit": round(self.validate(), 4)}


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder with tokenizer.json, train.bin, validation.bin"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7.5, help="of the whole run, compilation and samples included")
    parser.add_argument("--steps", type=int, default=10**9, help="stop earlier than the budget")
    parser.add_argument("--config", default="{}", help="JSON over student.Config's defaults")
    parser.add_argument("--batch", type=int, default=256, help="windows per step")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--rounded-share", type=float, default=0.2, help="last share of the time, quantization-aware")
    parser.add_argument("--validation-batches", type=int, default=8)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--save-seconds", type=float, default=45.0)
    parser.add_argument("--reserve", type=float, default=RESERVE)
    parser.add_argument("--compile", action="store_true", help="compile on a CPU too")
    parser.add_argument("--seed", type=int, default=1)
    Training(parser.parse_args()).run()


if __name__ == "__main__":
    main()
