"""pi0 or pi0.5 with its checkpoint, as a step policy: a step is one Euler step of the flow, shared by rows wherever they are in theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ...errors import InvalidRequestError, WeightsError
from ...messages import ActBody
from ..step_policy import Actions
from .checkpoint import CAMERAS, READER, WEIGHTS, Checkpoint, Statistics
from .network import Memory, Pi0Network, short_name
from .tokens import Tokenizer

TINY = 1e-6
"""Added by openpi to what it divides by."""

Numbers = npt.NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Pi0Row:
    """`pictures` `[c, 3, s, s]`; `own_state` as the robot sent it, `state` `[A]` normalised and padded; `chunk` `[H, A]`."""

    pictures: Tensor
    tokens: Tensor
    own_state: Numbers
    state: Tensor
    chunk: Tensor
    seed: int
    steps: int
    prefix_length: int = 0
    step: int = 0
    memory: Memory = field(default_factory=list)


@dataclass(slots=True)
class _Stack:
    """What the rows of the last step attend to, side by side, so that a step with the same rows moves nothing."""

    rows: list[Pi0Row]
    memory: Memory
    lengths: Tensor
    state: Tensor


class Pi0Model:
    """See the module's docstring and `step_policy.StepPolicy`. Used on one thread only."""

    def __init__(self, checkpoint: Checkpoint, network: Pi0Network, tokenizer: Tokenizer, device: str, steps: int, max_steps: int) -> None:
        self._checkpoint = checkpoint
        self._device = torch.device(device)
        self._network = network.to(self._device).eval().requires_grad_(False)
        self._tokenizer = tokenizer
        self._steps, self._max_steps = steps, max_steps
        self._stack: _Stack | None = None

    @classmethod
    def load(cls, checkpoint: Checkpoint, tokenizer: Tokenizer, *, device: str, dtype: torch.dtype, steps: int, max_steps: int) -> Pi0Model:
        """Read the weights. Raises `WeightsError`."""
        file = checkpoint.folder / WEIGHTS
        with torch.device("meta"):
            network = Pi0Network(checkpoint.shape)
        try:
            found = load_file(file)
            table = READER + "embed_tokens.weight"
            if table not in found:  # it is one with the output layer, and which of the two is written is chance
                found[table] = found["paligemma_with_expert.paligemma.lm_head.weight"]
            named = {short: tensor for name, tensor in found.items() if (short := short_name(name)) is not None}
            network.load_state_dict(named, assign=True)
        except (RuntimeError, SafetensorError, OSError, KeyError) as error:
            raise WeightsError(f"the weights {file} are not those of a pi0 or pi0.5 of openpi: {error}") from error
        network.to_precision(dtype)
        return cls(checkpoint, network, tokenizer, device, steps, max_steps)

    def prepare(self, body: ActBody, seed: int) -> Pi0Row:
        """See `StepPolicy`. Raises `InvalidRequestError` for an observation that does not fit."""
        if body.prefix is not None:
            raise InvalidRequestError("this policy cannot continue given actions")
        checkpoint, shape = self._checkpoint, self._checkpoint.shape
        wiring = checkpoint.wiring
        own = np.concatenate([self._read(body, key, (length,), "float32") for key, length in wiring.state.items()]).astype(np.float32)
        picture = (shape.side, shape.side, 3)
        pictures = [self._read(body, wiring.cameras[camera], picture, "uint8") for camera in CAMERAS if camera in wiring.cameras]
        normal = self._normalised(own)
        tokens = self._tokenizer.tokens(body.prompt, normal if shape.pi05 else None)
        if max(tokens) >= shape.vocabulary:
            raise InvalidRequestError("the tokenizer knows more words than the policy")
        state = np.zeros(shape.action_dim, np.float32)
        state[: len(normal)] = normal
        noise = torch.randn(checkpoint.horizon, shape.action_dim, generator=torch.Generator().manual_seed(seed))
        return Pi0Row(
            pictures=torch.from_numpy(np.stack(pictures).transpose(0, 3, 1, 2).copy()),
            tokens=torch.tensor(tokens),
            own_state=own,
            state=torch.from_numpy(state).to(self._device),
            chunk=noise.to(self._device),
            seed=seed,
            steps=min(self._max_steps, max(1, body.steps or self._steps)),
        )

    def _read(self, body: ActBody, key: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[np.generic]:
        if key not in body.observation:
            raise InvalidRequestError(f"the observation has no {key!r}")
        array = body.observation[key].numpy()
        if array.shape != shape or array.dtype != np.dtype(dtype):
            raise InvalidRequestError(f"{key!r} is {array.dtype} {list(array.shape)}; the policy takes {dtype} {list(shape)}")
        return array

    @torch.inference_mode()
    def begin(self, rows: Sequence[Pi0Row]) -> None:
        pictures = torch.cat([row.pictures for row in rows]).to(self._device)
        seen = torch.split(self._network.see(pictures), [len(row.pictures) for row in rows])
        told = [
            torch.cat((eyes.flatten(0, 1), self._network.words(row.tokens.to(self._device)))) for eyes, row in zip(seen, rows, strict=True)
        ]
        lengths = torch.tensor([len(each) for each in told], device=self._device)
        memory = self._network.read(torch.nn.utils.rnn.pad_sequence(told, batch_first=True), lengths)
        for index, row in enumerate(rows):
            row.memory = [(key[index, :, : len(told[index])], value[index, :, : len(told[index])]) for key, value in memory]
            row.pictures = torch.empty(0)

    @torch.inference_mode()
    def advance(self, rows: Sequence[Pi0Row]) -> None:
        stack = self._stacked(rows)
        time = torch.tensor([1 - row.step / row.steps for row in rows], device=self._device)
        pace = torch.tensor([1 / row.steps for row in rows], device=self._device)[:, None, None]
        chunk = torch.stack([row.chunk for row in rows])
        moved = chunk - pace * self._network.velocity(chunk, time, stack.state, stack.memory, stack.lengths)
        for row, its in zip(rows, moved, strict=True):
            row.chunk = its
            row.step += 1
            if row.step == row.steps:
                self._stack, row.memory = None, []

    def finish(self, row: Pi0Row) -> Actions:
        wiring = self._checkpoint.wiring
        actions = self._own(row.chunk.float().cpu().numpy()[:, : wiring.action_dim])
        relative = np.asarray(wiring.delta, bool)
        actions[:, : len(relative)] += np.where(relative, row.own_state[: len(relative)], 0)
        return np.ascontiguousarray(actions, np.float32)

    def _normalised(self, state: Numbers) -> Numbers:
        low, span, shift = self._scale(self._checkpoint.statistics.state, len(state))
        return ((state - low) / span - shift).astype(np.float32)

    def _own(self, actions: Numbers) -> Numbers:
        low, span, shift = self._scale(self._checkpoint.statistics.actions, actions.shape[-1])
        return ((actions + shift) * span + low).astype(np.float32)

    def _scale(self, known: Statistics, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
        """`low`, `span` and `shift` of `(own - low) / span - shift`: mean and deviation, or the quantiles from -1 to 1."""
        if not self._checkpoint.quantiles:
            return np.asarray(known.mean[:count]), np.asarray(known.std[:count]) + TINY, 0.0
        assert known.q01 is not None
        assert known.q99 is not None
        low = np.asarray(known.q01[:count])
        return low, (np.asarray(known.q99[:count]) - low + TINY) / 2, 1.0

    def _stacked(self, rows: Sequence[Pi0Row]) -> _Stack:
        stack = self._stack
        if stack is not None and len(stack.rows) == len(rows) and all(a is b for a, b in zip(stack.rows, rows, strict=True)):
            return stack
        lengths = [row.memory[0][0].shape[1] for row in rows]
        longest = max(lengths)

        def side_by_side(layer: int, part: int) -> Tensor:
            padded = [
                torch.nn.functional.pad(row.memory[layer][part], (0, 0, 0, longest - n)) for row, n in zip(rows, lengths, strict=True)
            ]
            return torch.stack(padded)

        self._stack = _Stack(
            rows=list(rows),
            memory=[(side_by_side(layer, 0), side_by_side(layer, 1)) for layer in range(len(rows[0].memory))],
            lengths=torch.tensor(lengths, device=self._device),
            state=torch.stack([row.state for row in rows]),
        )
        return self._stack
