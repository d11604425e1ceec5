"""Train an adapter (LoRA) for a llama model that is read from its GGUF file. Needs PyTorch, numpy and
`gguf`; a graphics card helps, and 2 cores that know bf16 learn from 7 requests a second.

    python evals/training/train.py MODEL.gguf build/training/rows.npz OUT.gguf --seconds 2400
    python evals/training/train.py MODEL.gguf rows.npz OUT.gguf --start OLD.gguf --rate 6e-4

The weights are dequantized, so that the adapter learns on top of what quantization left; they stay as
they are. Every linear layer gets two matrices (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large
Language Models"). The loss counts the tokens of the calls alone. A row holds several requests behind
one list of tools (`prepare.py`); none of them sees another.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import click
import gguf
import numpy as np
import torch
import torch.nn.functional as F
from gguf.quants import dequantize, quantize

KINDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
SCALE = 2.0
"""By what the product of the two matrices is multiplied."""

LONGEST = 2048
NEAR_ROWS = 400
"""Rows among which batches of about equal lengths are formed."""

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPE = torch.bfloat16


class Weights:
    """The weights of a GGUF file, and what it says of its model."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.tensors = {
            tensor.name.removesuffix(".weight"): dequantize(tensor.data, tensor.tensor_type)
            .astype(np.float32)
            .reshape([int(size) for size in reversed(tensor.shape)])
            for tensor in reader.tensors
        }
        self._fields = reader.fields
        self.layers = self.fact("block_count")
        self.heads = self.fact("attention.head_count")
        self.shared_heads = self.fact("attention.head_count_kv")
        self.width = self.fact("embedding_length") // self.heads
        self.epsilon = self.fact("attention.layer_norm_rms_epsilon")
        self.base = self.fact("rope.freq_base")

    def fact(self, name: str) -> Any:
        return self._fields[f"llama.{name}"].contents()

    def stack(self, kind: str) -> np.ndarray:
        """Return the matrices of a kind of all layers."""
        return np.stack([self.tensors[f"blk.{layer}.{kind}"] for layer in range(self.layers)])


class AdaptedModel:
    """A llama model with an adapter. The rotation of positions is that of GGUF files: of neighbours."""

    def __init__(self, weights: Weights, given: argparse.Namespace) -> None:
        self._weights = weights
        self.embedding = _load(weights.tensors["token_embd"])
        self._norm = _load(weights.tensors["output_norm"])
        self._norms = [_load(weights.stack(kind)) for kind in ("attn_norm", "ffn_norm")]
        self._fixed = [_load(weights.stack(kind)) for kind in KINDS]
        self.down: list[list[torch.Tensor]] = []
        self.up: list[list[torch.Tensor]] = []
        start = Start(given.start) if given.start else None
        for kind, fixed in zip(KINDS, self._fixed, strict=True):
            layers, outer, inner = fixed.shape
            down = [torch.randn(given.rank, inner) / math.sqrt(inner) for _ in range(layers)]
            up = [torch.zeros(outer, given.rank) for _ in range(layers)]
            if start is not None:
                down, up = start.matrices(kind, "a", layers), start.matrices(kind, "b", layers)
            self.down.append([matrix.to(DEVICE).requires_grad_() for matrix in down])
            self.up.append([matrix.to(DEVICE).requires_grad_() for matrix in up])
        half = torch.arange(0, weights.width, 2).float() / weights.width
        angles = torch.outer(torch.arange(LONGEST).float(), weights.base**-half)
        self._cos, self._sin = _load(angles.cos()), _load(angles.sin())
        self._compiled = torch.compile(self._layer, dynamic=True)

    def parameters(self) -> list[torch.Tensor]:
        return [matrix for part in (self.down, self.up) for kind in part for matrix in kind]

    def hidden_states(
        self, tokens: torch.Tensor, places: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        """Return the last hidden states of rows of tokens, each with its place and what it sees."""
        cos, sin = self._cos[places][:, :, None], self._sin[places][:, :, None]
        hidden = torch.zeros(seen.shape, dtype=TYPE, device=DEVICE).masked_fill(~seen, -30_000.0)
        x = F.embedding(tokens, self.embedding)
        for layer in range(self._weights.layers):
            norms = [norm[layer] for norm in self._norms]
            fixed = [weights[layer] for weights in self._fixed]
            down = [matrices[layer] for matrices in self.down]
            up = [matrices[layer] for matrices in self.up]
            x = self._compiled(x, cos, sin, hidden[:, None], norms, fixed, down, up)
        return self._normalize(x, self._norm)

    def _layer(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        hidden: torch.Tensor,
        norms: list[torch.Tensor],
        fixed: list[torch.Tensor],
        down: list[torch.Tensor],
        up: list[torch.Tensor],
    ) -> torch.Tensor:
        rows, length, size = x.shape
        heads, shared = self._weights.heads, self._weights.shared_heads

        def project(y: torch.Tensor, kind: int) -> torch.Tensor:
            learned = F.linear(F.linear(y, down[kind].to(TYPE)), (up[kind] * SCALE).to(TYPE))
            return F.linear(y, fixed[kind]) + learned

        def split(y: torch.Tensor, count: int) -> torch.Tensor:
            return y.view(rows, length, count, self._weights.width)

        y = self._normalize(x, norms[0])
        query = _rotate(split(project(y, 0), heads), cos, sin).transpose(1, 2)
        key = _rotate(split(project(y, 1), shared), cos, sin).transpose(1, 2)
        value = split(project(y, 2), shared).transpose(1, 2)
        key, value = (part.repeat_interleave(heads // shared, 1) for part in (key, value))
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        x = x + project(attended.transpose(1, 2).reshape(rows, length, size), 3)
        y = self._normalize(x, norms[1])
        return x + project(F.silu(project(y, 4)) * project(y, 5), 6)

    def _normalize(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self._weights.epsilon)


def _load(values: Any) -> torch.Tensor:
    return torch.as_tensor(values).to(DEVICE, TYPE)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    return turned.flatten(-2)


class Start:
    """An adapter that is trained on."""

    def __init__(self, path: Path) -> None:
        self._tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}

    def matrices(self, kind: str, part: str, layers: int) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for layer in range(layers):
            tensor = self._tensors[f"blk.{layer}.{kind}.weight.lora_{part}"]
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            shape = [int(size) for size in reversed(tensor.shape)]
            found.append(torch.from_numpy(values.reshape(shape).copy()))
        return found


class Data:
    """Rows of tokens (`prepare.py`), in batches of about equal lengths."""

    def __init__(self, path: Path, seed: int) -> None:
        file = np.load(path)
        self._tokens, self._parts = file["tokens"].astype(np.int64), file["parts"].astype(np.int64)
        self._ends, self._epoch = file["ends"], file["epoch"]
        self._begins = np.concatenate([[0], self._ends[:-1]])
        self._rng = np.random.default_rng(seed)

    @property
    def epochs(self) -> int:
        return int(self._epoch.max()) + 1

    def batches(self, epoch: int, most_tokens: int) -> list[list[int]]:
        """Return the rows of an epoch in batches; of -1, those that are kept apart."""
        picked = np.flatnonzero(self._epoch == epoch)
        self._rng.shuffle(picked)
        lengths = self._ends - self._begins
        found: list[list[int]] = []
        for at in range(0, len(picked), NEAR_ROWS):
            near = picked[at : at + NEAR_ROWS]
            batch: list[int] = []
            for row in near[np.argsort(lengths[near], kind="stable")]:
                if batch and (len(batch) + 1) * lengths[row] > most_tokens:
                    found.append(batch)
                    batch = []
                batch.append(int(row))
            found.append(batch)
        self._rng.shuffle(found)
        return found

    def losses(self, model: AdaptedModel, batch: list[int]) -> torch.Tensor:
        """Return the loss of every token of the calls of a batch."""
        length = int(max(self._ends[row] - self._begins[row] for row in batch))
        tokens = np.zeros((len(batch), length), np.int64)
        parts = np.full((len(batch), length), -1, np.int64)
        places = np.zeros((len(batch), length), np.int64)
        for number, row in enumerate(batch):
            piece = slice(self._begins[row], self._ends[row])
            size = piece.stop - piece.start
            tokens[number, :size], parts[number, :size] = self._tokens[piece], self._parts[piece]
            places[number, :size] = _find_places(self._parts[piece])
        tokens_there, places_there = (torch.from_numpy(one).to(DEVICE) for one in (tokens, places))
        states = model.hidden_states(tokens_there, places_there, _find_seen(parts))
        counted = torch.from_numpy((parts > 0) & (parts % 2 == 1)).to(DEVICE)[:, 1:]
        guessed = F.linear(states[:, :-1][counted], model.embedding).float()
        return F.cross_entropy(guessed, tokens_there[:, 1:][counted], reduction="none")


def _find_places(parts: np.ndarray) -> np.ndarray:
    """Return the places of a row's tokens: every request goes on behind the tools."""
    requests = parts // 2
    places = np.arange(len(parts))
    head = int((requests == 0).sum())
    for request in range(1, int(requests.max()) + 1):
        own = np.flatnonzero(requests == request)
        places[own] = head + np.arange(len(own))
    return places


def _find_seen(parts: np.ndarray) -> torch.Tensor:
    """Return what each token sees: of what is before it, the tools and its own request."""
    requests = torch.from_numpy(np.where(parts < 0, -9, parts // 2)).to(DEVICE)
    length = requests.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=DEVICE).tril()
    own = requests[:, :, None] == requests[:, None, :]
    itself = torch.eye(length, dtype=torch.bool, device=DEVICE)
    return ((own | (requests[:, None, :] == 0)) & before) | itself


def train(model: AdaptedModel, data: Data, given: argparse.Namespace) -> list[float]:
    """Train with a rate that rises for fifteen steps and falls as a cosine, to the end of the time."""
    plan = [
        batch for epoch in range(data.epochs) for batch in data.batches(epoch, given.batch_tokens)
    ]
    parameters = model.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=given.rate, betas=(0.9, 0.98), weight_decay=0.0)
    begun = time.monotonic()
    losses: list[float] = []
    for step, batch in enumerate(plan):
        at = max(step / len(plan), (time.monotonic() - begun) / given.seconds)
        if at >= 1:
            click.echo(f"the time is up at step {step} of {len(plan)}")
            break
        for group in optimizer.param_groups:
            slope = 0.5 + 0.5 * math.cos(math.pi * at)
            group["lr"] = given.rate * min(1, (step + 1) / 15) * slope
        loss = data.losses(model, batch).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step % 20 == 19:
            mean, took = sum(losses[-40:]) / len(losses[-40:]), time.monotonic() - begun
            click.echo(f"step {step + 1} of {len(plan)}: loss {mean:.4f}, {took:.0f} s")
    return losses


def measure_apart(model: AdaptedModel, data: Data, given: argparse.Namespace) -> float:
    """Return the mean loss of a token of the calls of functions that were kept apart."""
    with torch.no_grad():
        batches = data.batches(-1, given.batch_tokens)
        return torch.cat([data.losses(model, batch) for batch in batches]).mean().item()


def write_adapter(model: AdaptedModel, path: Path) -> None:
    """Write the adapter as llama.cpp reads it (its `convert_lora_to_gguf.py` names the fields).

    The wide matrices are written in 8 bits; a row of the others is no multiple of 32.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", SCALE * model.down[0][0].shape[0])
    writer.add_name("Tool calls for SmolLM2 135M Instruct")
    writer.add_license("Apache-2.0")
    eight_bits = gguf.GGMLQuantizationType.Q8_0
    for part, matrices in (("a", model.down), ("b", model.up)):
        for kind, layers in zip(KINDS, matrices, strict=True):
            for layer, matrix in enumerate(layers):
                name = f"blk.{layer}.{kind}.weight.lora_{part}"
                values = np.ascontiguousarray(matrix.detach().float().cpu().numpy())
                if values.shape[1] % 32 == 0:
                    writer.add_tensor(name, quantize(values, eight_bits), raw_dtype=eight_bits)
                else:
                    writer.add_tensor(name, values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path, help="an adapter that is trained on")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch-tokens", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    model = AdaptedModel(Weights(given.model), given)
    data = Data(given.rows, given.seed)
    losses = train(model, data, given)
    write_adapter(model, given.out)
    click.echo(f"{len(losses)} steps; apart: loss {measure_apart(model, data, given):.4f}")


if __name__ == "__main__":
    main()
