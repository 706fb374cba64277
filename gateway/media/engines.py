"""Which engine makes the pictures and clips of a model name."""

from __future__ import annotations

from ..errors import ApiError
from ..jobs.job import JobKind
from ..service import Gateway
from .target import Target

MEND = "Name a diffusion engine in server.media of the configuration, and install what it needs: pip install 'antiphon[media]'."


def media_targets(gateway: Gateway) -> dict[str, Target]:
    """Every served media engine by its own name, in the order of the configuration."""
    targets: dict[str, Target] = {}
    for name in gateway.settings.server.media:
        if name in gateway.pool and (media := gateway.pool.engine(name).capabilities.media) is not None:
            targets[name] = Target(name, name, media)
    return targets


def media_names(gateway: Gateway) -> dict[str, str]:
    """The names that lead to a media engine without the fallback, and which it is."""
    names: dict[str, str] = {}
    targets = media_targets(gateway)
    for lane in targets:
        for name in (lane, *gateway.pool.engine(lane).capabilities.models):
            names.setdefault(name, lane)
    for alias, name in gateway.settings.models.aliases.items():
        if name in targets:
            names.setdefault(alias, name)
    return names


def target_for(gateway: Gateway, model: str, kind: JobKind) -> Target:
    """The engine for a model name: the one that has it, else the first that can. Raises a 404 `ApiError`."""
    targets = media_targets(gateway)
    if any(name in gateway.pool and name not in targets for name in gateway.settings.server.media):
        # What it can make is not known yet; nothing should be sent to another one only because this one starts more slowly.
        raise ApiError(503, "engine_starting", "The models that draw are being loaded. Try again soon.", headers={"retry-after": "2"})
    if not targets:
        raise ApiError(404, "model_not_found", f"This server makes no pictures and clips. {MEND}", param="model")
    what = "clips" if kind is JobKind.VIDEO else "pictures"
    able = [target for target in targets.values() if (target.media.max_frames > 1 if kind is JobKind.VIDEO else target.media.pictures)]
    lane = media_names(gateway).get(model)
    if lane is not None:
        named = targets[lane]
        if named not in able:
            others = ", ".join(target.lane for target in able) or "none here"
            raise ApiError(404, "model_not_found", f"The model '{model}' makes no {what}; these do: {others}.", param="model")
        return Target(lane, model, named.media)
    if not able:
        raise ApiError(404, "model_not_found", f"No model of this server makes {what}. {MEND}", param="model")
    if model and gateway.settings.models.strict:
        known = ", ".join(target.lane for target in able)
        raise ApiError(404, "model_not_found", f"The model '{model[:100]}' does not exist. There are: {known}.", param="model")
    return Target(able[0].lane, model or able[0].lane, able[0].media)
