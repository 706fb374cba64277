"""`antiphon models`: which models there are, which are here, bring them, check them, remove them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..engines import catalogue, weights
from ..engines.errors import WeightsError

app = typer.Typer(name="models", no_args_is_help=True, help="The models' weights: list, pull, verify, find and remove them.")

Names = Annotated[list[str] | None, typer.Argument(help="Names of models, as `antiphon models list` shows them.")]
Name = Annotated[str, typer.Argument(help="Name of a model, as `antiphon models list` shows it.")]


class ModelSet(StrEnum):
    """Models that belong together."""

    DEFAULT = "default"
    DEMO = "demo"
    SCENARIO = "scenario"
    ALL = "all"


@app.command("list")
def list_models() -> None:
    """Show every model: its name, role, licence, size, and whether it is here."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("name", "role", "licence"):
        table.add_column(heading, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("what it is")
    for model in catalogue.MODELS:
        here = "[green]yes[/green]" if weights.present(model.name) else "[dim]no[/dim]"
        table.add_row(model.name, model.role, model.licence, f"{model.size / 1e6:.1f} MB", here, model.summary)
    console = Console()
    console.print(table)
    console.print(f"\nkept under {weights.home() / 'models'}", style="dim", highlight=False)


@app.command()
def pull(
    names: Names = None,
    set_: Annotated[
        ModelSet | None, typer.Option("--set", help="Bring a whole set: what a server needs, what the demo and scenarios need too, or all.")
    ] = None,
) -> None:
    """Bring the weights that are missing or altered; without names, those a server needs."""
    wanted = list(names or [])
    if set_ is not None or not wanted:
        wanted.extend(name for name in catalogue.SETS[set_ or ModelSet.DEFAULT] if name not in wanted)
    console = Console(stderr=True)
    for name in wanted:
        with _failing_clearly():
            weights.pull(name, progress=lambda step: console.print(step, highlight=False))


@app.command()
def verify(names: Names = None) -> None:
    """Hash the weights anew; without names, all those that are here. Ends with status 1 when a file is missing or altered."""
    wanted = names or [model.name for model in catalogue.MODELS if weights.folder(model.name).exists()]
    console = Console()
    failed = False
    for name in wanted:
        try:
            weights.verify(name)
        except WeightsError as error:
            failed = True
            console.print(f"[red]{name}[/red]: {error}", highlight=False, soft_wrap=True)
        else:
            console.print(f"[green]{name}[/green]: intact", highlight=False)
    if failed:
        raise typer.Exit(1)


@app.command()
def path(name: Name) -> None:
    """Print the paths of a model's files, one a line. Ends with status 1 when they are not here."""
    with _failing_clearly():
        for file in weights.locate(name).values():
            typer.echo(file)


@app.command()
def remove(names: Annotated[list[str], typer.Argument(help="Names of models, as `antiphon models list` shows them.")]) -> None:
    """Delete the weights of these models."""
    for name in names:
        with _failing_clearly():
            typer.echo(f"{name}: {'removed' if weights.remove(name) else 'was not here'}")


@contextlib.contextmanager
def _failing_clearly() -> Iterator[None]:
    """Turn a `WeightsError` into its sentence on standard error and exit status 1."""
    try:
        yield
    except WeightsError as error:
        typer.secho(str(error), err=True, fg=typer.colors.RED)
        raise typer.Exit(1) from error
