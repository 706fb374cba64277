"""`antiphon`: the command line. Each command is imported only when it is asked for, so that none needs another's packages."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

PACKAGE = __package__ or "antiphon"


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives, and its line in `antiphon --help`."""

    module: str
    name: str
    """A function, or a `typer.Typer` with several commands of its own (of this module, when `module` is empty)."""
    help: str


TRAINING = {
    "diffusion": Command("engines.diffusion.training.cli", "diffusion", "Train TinyFlow, which makes pictures and clips, and measure it."),
    "policy": Command("robot.training.cli", "policy", "Train a robot policy from a scripted expert, and measure it in closed loop."),
}
"""Of `antiphon train`; the parts that train need not know of each other."""

COMMANDS = {
    "serve": Command("gateway.cli", "serve", "Run the gateway until it is told to stop."),
    "worker": Command("gateway.cli_worker", "worker", "Make pictures and clips for servers that share its job queue."),
    "talk": Command("clients.cli", "talk", "Speak with a server through microphone and loudspeaker, or let a file speak."),
    "models": Command("gateway.cli_models", "app", "The models' weights: list, pull, verify, find and remove them."),
    "train": Command("", "training", "Train the models that the house makes itself, and measure them."),
    "robot": Command("scenarios.robots.cli", "app", "Have simulated robots do their tasks by a live server's policy; leaves a video."),
    "scenario": Command("scenarios.cli", "app", "Run a whole story against a live server and print its figures."),
    "replay": Command("gateway.cli", "replay", "Run a recorded session through the session core again and compare."),
    "speak": Command("gateway.cli", "speak", "Say a text with a speech engine, into a WAV file."),
}


class LazyGroup(TyperGroup):
    """Knows its commands by name, and imports one when it is run."""

    known = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.known)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = self.known.get(cmd_name)
        if command is None:
            return None
        if not command.module:
            group = typer.main.get_command(globals()[command.name])
            group.name = cmd_name
            return group
        try:
            found = getattr(importlib.import_module(f".{command.module}", PACKAGE), command.name)
        except ModuleNotFoundError as error:
            return _unavailable(cmd_name, command, error)
        app = found if isinstance(found, typer.Typer) else _single(cmd_name, found)
        loaded = typer.main.get_command(app)
        loaded.name = cmd_name
        return loaded


class TrainingGroup(LazyGroup):
    """`antiphon train`."""

    known = TRAINING


def _single(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command(name)(function)
    return app


def _unavailable(name: str, command: Command, error: ModuleNotFoundError) -> Any:
    """A command that says what it lacks."""
    app = typer.Typer(add_completion=False)

    @app.command(name, help=f"{command.help} (needs the package {error.name})")
    def explain() -> None:
        typer.echo(f"antiphon {name} needs the Python package {error.name!r}: pip install {error.name}", err=True)
        raise typer.Exit(1)

    return typer.main.get_command(app)


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False)
training = typer.Typer(cls=TrainingGroup, no_args_is_help=True, add_completion=False, help=COMMANDS["train"].help)


@training.callback()
def _training() -> None:
    """Keeps the group a group."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(importlib.import_module(PACKAGE).__version__)
        raise typer.Exit


@app.callback(help="Antiphon: a realtime voice you can interrupt, and action chunks for robots that are never stale.")
def _antiphon(
    version: bool = typer.Option(False, "--version", help="Show the version and leave.", is_eager=True, callback=_version),
) -> None:
    """Options of the whole program."""


def main() -> None:
    """The entry point of the `antiphon` script."""
    app(prog_name="antiphon")


if __name__ == "__main__":
    main()
