"""`antiphon train policy`: data, training, weights and closed-loop evaluation of the policies that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...engines.errors import EngineError
from ..sim.simulation import RenderError
from .errors import CheckpointError

SHIPPED = Path(__file__).resolve().parent.parent / "weights"


def policy(
    task: Annotated[str, typer.Option(help="Which policy: tabletop, tabletop-eyes or metaworld.")] = "tabletop",
    out: Annotated[
        Path | None,
        typer.Option(help="Where data, checkpoint, log, weights and report go; the default is out/policy/TASK.", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that is there; without it, a folder with a run in it is refused.")
    ] = False,
    steps: Annotated[int | None, typer.Option(help="Training steps; the default is the recipe's.", min=1, show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="One seed and one thread give the same data and weights again.", min=0)] = 0,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Only evaluate the weights named by --weights.")] = False,
    weights: Annotated[
        Path | None, typer.Option(help="A policy's folder to evaluate; the default is the one that ships.", show_default=False)
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes a task and trial of the evaluation; 0: none.", min=0)] = 50,
    delay: Annotated[
        list[int] | None,
        typer.Option(help="Delays in control steps to evaluate, each with every hand-over; default: 2 and 4.", show_default=False),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of the matrix products.", min=1)] = 1,
) -> None:
    """Train a robot policy from a scripted expert, and measure it in closed loop."""
    try:
        _policy(task, out, resume, steps, seed, evaluate, weights, episodes, tuple(delay or (2, 4)), threads)
    except ModuleNotFoundError as error:
        typer.echo(f"training needs the Python package {error.name!r}: pip install 'antiphon[train]'", err=True)
        raise typer.Exit(1) from None
    except (CheckpointError, EngineError, RenderError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _policy(
    task: str,
    out: Path | None,
    resume: bool,
    steps: int | None,
    seed: int,
    evaluate: bool,
    weights: Path | None,
    episodes: int,
    delays: tuple[int, ...],
    threads: int,
) -> None:
    import torch

    torch.set_num_threads(threads)
    from .pipeline import Run, measure
    from .recipes import RECIPES

    if task not in RECIPES:
        raise typer.BadParameter(f"there is no recipe {task!r}; there are {', '.join(RECIPES)}", param_hint="--task")
    recipe = RECIPES[task]()
    most = recipe.max_prefix or recipe.horizon
    if wrong := [delay for delay in delays if not 0 <= delay <= most]:
        raise typer.BadParameter(f"{wrong[0]} is not between 0 and {most}, the steps that a chunk can bridge", param_hint="--delay")
    folder = out or Path("out/policy") / task
    losses: list[tuple[int, float]] = []
    if evaluate:
        found = weights or SHIPPED / task
    else:
        run = Run(folder, recipe, seed, lambda line: typer.echo(line, err=True))
        if run.checkpoint.exists() and not resume:
            raise typer.BadParameter(
                f"{folder} holds a run already: --resume goes on with it, --out names another folder", param_hint="--out"
            )
        losses = run.train(steps).losses
        found = run.policy
    if episodes:
        typer.echo(measure(folder / "report", found, recipe, episodes, delays, losses, lambda line: typer.echo(line, err=True)))
    typer.echo(f"weights: {found}")
