"""`antiphon train`: make the weights that the house ships, from nothing but a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Train the models that the house makes itself.")


@app.callback()
def _train() -> None:
    """Keeps `diffusion` a subcommand."""


@app.command()
def diffusion(
    out: Annotated[
        Path, typer.Option(help="Where checkpoints, the log, the weights and the report go; an unfinished run there is resumed.")
    ] = Path("out/diffusion"),
    steps: Annotated[int, typer.Option(help="Steps of the main stage. More than last time lengthens a run.", min=1)] = 4400,
    batch: Annotated[int, typer.Option(help="Scenes a step.", min=1)] = 128,
    seed: Annotated[int, typer.Option(help="One seed, one thread and no assistant give the same weights again.")] = 0,
    assistant: Annotated[bool, typer.Option(help="A second process computes gradients too, on a second core.")] = False,
    text_steps: Annotated[int, typer.Option(help="Steps of the text encoder's stage.", min=1)] = 700,
    decoder_steps: Annotated[int, typer.Option(help="Steps of the decoder's stage.", min=1)] = 10_000,
    evaluate: Annotated[bool, typer.Option(help="Only evaluate: the weights named by --weights.")] = False,
    weights: Annotated[Path | None, typer.Option(help="A folder of weights to evaluate; the default is what ships.")] = None,
    pictures: Annotated[int, typer.Option(help="Held-out prompts for pictures.", min=0)] = 200,
    clips: Annotated[int, typer.Option(help="Held-out prompts for clips.", min=0)] = 100,
    sampling_steps: Annotated[int | None, typer.Option(help="Denoising steps; the default is the model's own.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale; the default is the model's own.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of the matrix products.", min=1)] = 1,
) -> None:
    """Train TinyFlow (pictures and clips) and measure how well it follows prompts that it never saw."""
    import torch

    torch.set_num_threads(threads)
    from ..tinyflow import SHIPPED
    from ..tinyflow.steps import TinyFlowSteps
    from .evaluation import evaluate as measure
    from .flow import FlowSettings
    from .recipe import Logger, Recipe, train
    from .report import markdown, write

    out.mkdir(parents=True, exist_ok=True)
    if evaluate:
        found = weights or SHIPPED
    else:
        flow = FlowSettings(steps=steps, batch=batch, seed=seed)
        recipe = Recipe(text_steps=text_steps, decoder_steps=decoder_steps, flow=flow)
        found = train(out, recipe, assistant, typer.echo)
    log = Logger(out / "log.jsonl", lambda line: typer.echo(line, err=True))
    outcomes = measure(TinyFlowSteps(found), pictures, clips, steps=sampling_steps, guidance=guidance, log=log)
    figures = write(outcomes, out / "report")
    typer.echo(markdown(figures))
    typer.echo(f"{len(figures['failures'])} failures, pictures and clips to look at: {out / 'report'}")
