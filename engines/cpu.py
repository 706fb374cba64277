"""The one place where CPU threads are budgeted, and where onnxruntime sessions and worker threads are made.

Speech engines compute in short bursts, many sessions share them, and spinning threads would steal from each other and from
the chat model. So each engine gets one worker thread of its own and one compute thread, and what is left goes to chat.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ThreadBudget:
    """Compute threads an engine may use for one piece of work."""

    chat: int
    asr: int
    vad: int
    turn_end: int
    speech: int

    @classmethod
    def for_machine(cls, cores: int) -> ThreadBudget:
        """The budget for a machine of so many cores.

        Voice detection, turn end and speech never gain from a second thread (their models are too small). Recognition gains
        from a second one where there are at least eight cores. Chat is what a turn waits for longest: it gets the cores that
        are left after one is kept free for everything else, up to eight, beyond which small models stop gaining.
        """
        cores = max(1, cores)
        asr = 2 if cores >= 8 else 1
        # Never all cores: llama.cpp's threads wait for each other at every layer, so one that has to share its core holds up all
        # (measured on two busy cores: 16-54 ms a token with one thread, 118-755 ms with two).
        chat = max(1, min(8, cores - asr))
        return cls(chat=chat, asr=asr, vad=1, turn_end=1, speech=1)


def background_threads(cores: int) -> int:
    """Threads for an engine that makes pictures beside live work: small models gain little from more than one."""
    return max(1, min(8, cores // 4))


def available_cores() -> int:
    """Cores this process may run on: the affinity mask where the system has one, else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def onnx_session(model: Path | bytes, threads: int = 1) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU that neither spins nor uses more than `threads` threads.

    Raises ValueError when the file is no model that this onnxruntime can run.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as raised

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    source = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except (
        raised.InvalidProtobuf,
        raised.InvalidGraph,
        raised.InvalidArgument,
        raised.NotImplemented,
        raised.NoSuchFile,
        raised.Fail,
    ) as error:
        raise ValueError(str(error)) from error


def worker(name: str) -> ThreadPoolExecutor:
    """A single worker thread named for its engine (so that a profiler or `top -H` shows who computes)."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"antiphon-{name}")
