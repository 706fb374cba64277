"""Observations, checked against what the policy takes before it sees them: what is wrong is found here, and not as bad motion."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines.interface import ActionCapabilities, ArraySpec
from .errors import BadRequest

Array = npt.NDArray[Any]
MAX_LEVELS = 8
MAX_PROMPT = 4096
"""Characters of an instruction."""
SLACK = 1e-4
"""Of rounding at the bounds of a prefix."""


def check_observation(fields: Mapping[Any, Any], capabilities: ActionCapabilities) -> tuple[dict[str, Array], str]:
    """The arrays that the policy takes, by key and in its dtypes, and the prompt. Raises `BadRequest` that names the key.

    `fields` may be nested (`{"images": {"front": …}}` is `images/front`). Keys that the policy does not take are ignored. Arrays
    that have the right dtype are handed on as they are, without a copy.
    """
    flat: dict[str, Any] = {}
    _flatten(fields, "", flat, MAX_LEVELS)
    prompt = flat.pop("prompt", None)
    prompt = prompt.item() if isinstance(prompt, np.ndarray | np.generic) and prompt.size == 1 else prompt
    if prompt is not None and not isinstance(prompt, str):
        raise BadRequest("invalid_prompt", "prompt must be a text that says what to do.")
    if prompt is not None and len(prompt) > MAX_PROMPT:
        raise BadRequest("invalid_prompt", f"prompt must have at most {MAX_PROMPT} characters, not {len(prompt)}.")
    if capabilities.prompt and not (prompt or "").strip():
        raise BadRequest("missing_prompt", f"Policy {capabilities.policy!r} must be told what to do: send a 'prompt'.")
    return {spec.key: _checked(spec, flat) for spec in capabilities.observation}, prompt or ""


def check_prefix(prefix: Array | None, capabilities: ActionCapabilities) -> npt.NDArray[np.float32] | None:
    """The prefix as float32 `[d, A]`. Raises `BadRequest`."""
    if prefix is None:
        return None
    if not capabilities.max_prefix:
        raise BadRequest("invalid_prefix", f"Policy {capabilities.policy!r} cannot continue given actions: send no prefix.")
    if prefix.shape[1] != capabilities.action_dim or len(prefix) > capabilities.max_prefix:
        raise BadRequest(
            "invalid_prefix",
            f"prefix has the shape {list(prefix.shape)}; expected [d, {capabilities.action_dim}] with d up to {capabilities.max_prefix}.",
        )
    with np.errstate(over="ignore"):
        actions = prefix.astype(np.float32)
    if not np.isfinite(actions).all():
        raise BadRequest("invalid_prefix", "prefix holds values that are not finite numbers.")
    low, high = (np.asarray(bounds, np.float32) if bounds else None for bounds in (capabilities.low, capabilities.high))
    if (low is not None and (actions < low - SLACK).any()) or (high is not None and (actions > high + SLACK).any()):
        raise BadRequest("invalid_prefix", f"prefix holds actions beyond {_bounds(capabilities)}: it must be what will be executed.")
    return actions


def _bounds(capabilities: ActionCapabilities) -> str:
    """In words, those of all numbers of an action."""
    low = f"{min(capabilities.low):g}" if capabilities.low else "-inf"
    high = f"{max(capabilities.high):g}" if capabilities.high else "inf"
    return f"the policy's bounds ({low} to {high})"


def work_of(fields: Mapping[Any, Any]) -> int:
    """How many bytes of floats there are to look at: large ones are checked off the event loop."""
    return sum(
        work_of(value) if isinstance(value, dict) else value.nbytes if isinstance(value, np.ndarray) and value.dtype.kind == "f" else 0
        for value in fields.values()
    )


def _flatten(fields: Mapping[Any, Any], path: str, flat: dict[str, Any], levels: int) -> None:
    for key, value in fields.items():
        name = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
        if isinstance(value, dict) and levels:
            _flatten(value, f"{path}{name}/", flat, levels - 1)
        else:
            flat[path + name] = value


def _checked(spec: ArraySpec, flat: Mapping[str, Any]) -> Array:
    if spec.key not in flat:
        near = difflib.get_close_matches(spec.key, [key[: MAX_LEVELS * 16] for key in list(flat)[:64]], n=1)
        hint = f" Did you mean it by {near[0]!r}?" if near else ""
        raise BadRequest("missing_key", f"The observation has no {spec.key!r} ({_wanted(spec)}).{hint}")
    array = _array(spec, flat[spec.key])
    _check_shape(spec, array)
    array = _cast(spec, array)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise BadRequest("not_finite", f"{spec.key!r} holds values that are not finite numbers (NaN or infinity).")
        _check_range(spec, array)
    elif array.dtype.kind in "iu" and not _covers(spec, array.dtype):
        _check_range(spec, array)
    return array


def _array(spec: ArraySpec, value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list | int | float | np.generic) and not isinstance(value, bool):
        try:
            array: Array = np.asarray(value)
        except ValueError:
            array = np.empty(0, object)
        if array.dtype.kind in "iuf":
            with np.errstate(over="ignore"):  # what becomes infinite is refused for that
                return array.astype(spec.dtype) if np.dtype(spec.dtype).kind == "f" else array
    raise BadRequest("wrong_type", f"{spec.key!r} must be a numpy array ({_wanted(spec)}), not a {type(value).__name__}.")


def _check_shape(spec: ArraySpec, array: Array) -> None:
    if array.shape == spec.shape:
        return
    hint = ""
    if spec.layout == "HWC" and array.shape == (spec.shape[2], *spec.shape[:2]):
        hint = " It looks like channels first (CHW): move the channels to the end, as in np.moveaxis(image, 0, -1)."
    elif spec.layout == "CHW" and array.shape == (*spec.shape[1:], spec.shape[0]):
        hint = " It looks like channels last (HWC): move the channels to the front, as in np.moveaxis(image, -1, 0)."
    elif array.shape == (1, *spec.shape):
        hint = " Send one observation, without a batch dimension."
    elif spec.layout and array.ndim == 3:
        hint = " Resize it, as with openpi_client.image_tools.resize_with_pad."
    raise BadRequest("wrong_shape", f"{spec.key!r} has the shape {list(array.shape)}; expected {list(spec.shape)}{_in(spec)}.{hint}")


def _cast(spec: ArraySpec, array: Array) -> Array:
    """Floats of another width become the policy's; nothing else is converted, since a wrong guess would be seen only in the motion."""
    wanted = np.dtype(spec.dtype)
    if array.dtype == wanted:
        return array
    if array.dtype.kind == "f" and wanted.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(wanted)
    if array.dtype.kind == wanted.kind and array.dtype.itemsize == wanted.itemsize:  # the other byte order
        return array.astype(wanted)
    hint = ""
    if spec.layout and wanted == np.uint8 and array.dtype.kind == "f":
        hint = " Convert it, as with openpi_client.image_tools.convert_to_uint8."
    raise BadRequest("wrong_dtype", f"{spec.key!r} has the dtype {array.dtype}; expected {spec.dtype}.{hint}")


def _covers(spec: ArraySpec, dtype: np.dtype[Any]) -> bool:
    """Does every value of the dtype lie within the bounds?"""
    info = np.iinfo(dtype)
    return (spec.low is None or spec.low <= info.min) and (spec.high is None or spec.high >= info.max)


def _check_range(spec: ArraySpec, array: Array) -> None:
    if not array.size:
        return
    low, high = float(array.min()), float(array.max())
    if (spec.low is not None and low < spec.low) or (spec.high is not None and high > spec.high):
        bounds = f"{'-inf' if spec.low is None else f'{spec.low:g}'} to {'inf' if spec.high is None else f'{spec.high:g}'}"
        raise BadRequest("out_of_range", f"{spec.key!r} holds values from {low:g} to {high:g}; expected {bounds}. Are the units right?")


def _wanted(spec: ArraySpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}{_in(spec)}"


def _in(spec: ArraySpec) -> str:
    return f" ({spec.layout})" if spec.layout else ""
