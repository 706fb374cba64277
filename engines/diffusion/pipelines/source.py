"""Where a pipeline's files are: a folder, or the hub. Reads its JSON files; never imports torch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import WeightsError
from .options import DiffusersOptions

INDEX = "model_index.json"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class Source:
    """A pipeline's files. `name` is what `from_pretrained` takes: the folder's path, or the hub name."""

    name: str
    folder: Path | None
    revision: str | None
    offline: bool

    def config(self, part: str) -> dict[str, Any]:
        """The configuration of a part ("vae", "transformer"); empty when the pipeline has no such part. Raises `WeightsError`."""
        return self.read(f"{part}/config.json") or {}

    def read(self, path: str) -> dict[str, Any] | None:
        """A JSON file of the pipeline; None when there is none. Raises `WeightsError`."""
        file = self.folder / path if self.folder is not None else self._fetch(path)
        if file is None or not file.is_file():
            return None
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise WeightsError(f"{file} cannot be read: {error}. Bring the model's files here again.") from error
        if not isinstance(content, dict):
            raise WeightsError(f"{file} is not a JSON object. Bring the model's files here again.")
        return content

    def _fetch(self, path: str) -> Path | None:
        """A small file of the hub, from its cache when it is there."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

        try:
            return Path(hf_hub_download(self.name, path, revision=self.revision, local_files_only=self.offline))
        except LocalEntryNotFoundError as error:  # not in the cache, and the hub was not asked or could not be reached
            if path == INDEX:
                raise WeightsError(self.missing("it is not in the hub's cache either, and the hub was not reached")) from error
            return None
        except EntryNotFoundError:
            return None
        except (HfHubHTTPError, OSError, ValueError) as error:
            raise WeightsError(self.missing(f"the hub says: {str(error).strip().splitlines()[0]}")) from error

    def missing(self, reason: str) -> str:
        """A sentence about a hub name that does not give its files."""
        return (
            f"there is no folder {self.name!r} here; as the name of a hub model, {reason}. Fetch it with "
            f"`hf download {self.name} --local-dir FOLDER` where the hub can be reached, and set model to that folder."
        )


def locate(options: DiffusersOptions) -> Source:
    """The source that the options name, known to be a pipeline. Raises `WeightsError` that says what to do."""
    path = Path(options.model).expanduser()
    revision = options.revision or None
    if path.is_dir():
        if not (path / INDEX).is_file():
            raise WeightsError(
                f"{path} is not a diffusers pipeline: it has no {INDEX}. Set model to the folder that holds {INDEX}; a single checkpoint "
                "file is turned into such a folder by its pipeline class's from_single_file(...).save_pretrained(FOLDER)."
            )
        return Source(str(path), path, None, True)
    if path.is_file():
        raise WeightsError(
            f"{path} is a file. Set model to a folder that holds {INDEX}; a single checkpoint file is turned into such a folder by its "
            "pipeline class's from_single_file(...).save_pretrained(FOLDER)."
        )
    if not _HUB_NAME.fullmatch(options.model):
        raise WeightsError(
            f"there is no folder {options.model!r}, and that is no hub name (owner/name) either. Put a diffusers pipeline "
            f"(a folder with {INDEX}) there, or set model to where one is."
        )
    source = Source(options.model, None, revision, options.offline)
    if source.read(INDEX) is None:
        raise WeightsError(f"the hub model {options.model!r} is not a diffusers pipeline: it has no {INDEX}.")
    return source
