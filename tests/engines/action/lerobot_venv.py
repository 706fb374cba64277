"""A virtual environment with lerobot, made once in the user's cache.

lerobot pins torch, numpy's neighbours and dozens of packages that policies do not need, so only what they import is installed. torch and
everything else is seen in the environment that runs the tests, behind it on the path.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import torch

ALONE = ("lerobot==0.4.4", "draccus==0.10.0", f"torchvision==0.{int(torch.__version__.split('.')[1]) + 15}.*")
"""Installed without what they depend on; torchvision's version belongs to torch's."""

PACKAGES = (
    "datasets>=4,<5",
    "deepdiff>=7,<9",
    "diffusers>=0.35,<0.36",
    "einops>=0.8,<0.9",
    "huggingface-hub>=0.34.2,<0.36",
    "jsonlines>=4,<5",
    "mergedeep>=1.3,<2",
    "num2words>=0.5.14,<0.6",
    "pyserial>=3.5,<4",
    "pyyaml-include<2",
    "termcolor>=2.4,<4",
    "toml>=0.10,<1",
    "transformers>=4.57.1,<5",
    "typing_inspect>=0.9,<1",
)

SCHEMAS = """
if not _has_ops():
    # Built for another torch (with CUDA), its compiled operators do not load; policies do not use them, but nothing imports without
    # the schemas of these two.
    _schemas = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _schemas.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def lerobot_python() -> Path:
    """The interpreter of that environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon"
    recipe = repr((ALONE, PACKAGES, SCHEMAS, torch.__version__, sys.version_info[:2], sysconfig.get_paths()["purelib"]))
    folder = cache / f"lerobot-0.4.4-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(folder, python)
            (folder / "ready").touch()
    return python


def _make(folder: Path, python: Path) -> None:
    venv.create(folder, with_pip=True, clear=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    behind = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
    (packages / "behind.pth").write_text(behind)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-conflicts"]
    subprocess.run([*install, "--no-deps", *ALONE], check=True, timeout=600)
    subprocess.run([*install, *PACKAGES], check=True, timeout=600)
    with (packages / "torchvision" / "extension.py").open("a") as extension:
        extension.write(SCHEMAS)
    subprocess.run([str(python), "-c", "import lerobot.policies.factory"], check=True, timeout=300)
