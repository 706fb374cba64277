"""Simulated robots: worlds with tasks, scripted experts, cameras, and what people would say to have a task done.

    simulation        what a simulation offers, whatever simulates it
    tabletop          three cubes, two pads, a suction gantry; only the instruction says what to do (MuJoCo)
    tabletop_goals    its tasks
    meta_world        ten tasks of Meta-World
    instructions      sentences to train on, and others kept out
    worlds            the worlds of the policies that ship, by name
    rendering         pictures, off screen

MuJoCo reads `MUJOCO_GL` when it is imported; a Linux server has no screen, so it is told to draw with EGL unless told otherwise. Needs
`pip install 'antiphon[sim]'`.
"""

import os
import sys

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")
