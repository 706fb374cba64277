"""The device of a policy, as its owner named it."""

from __future__ import annotations

from ..errors import EngineError


def check_device(device: str) -> None:
    """Raise `EngineError` if torch cannot compute there: with a sentence, where torch would say what each back end thinks of it."""
    import torch

    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise EngineError(f"option 'device': torch cannot compute on {device!r} here ({why})", code="invalid_configuration") from error
