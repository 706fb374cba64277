"""A virtual environment with the stock OpenPI client, made once in the user's cache: it wants numpy 1, we want numpy 2."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

PACKAGES = ("openpi-client==0.1.2", "openpi-server==0.1.0", "numpy<2", "typing_extensions")
"""openpi-client 0.1.2 needs typing_extensions and does not say so."""


def openpi_python() -> Path:
    """The interpreter of that environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon"
    folder = cache / f"openpi-client-0.1.2-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            venv.create(folder, with_pip=True, clear=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
            subprocess.run(install, check=True, timeout=600)
            (folder / "ready").touch()
    return python
