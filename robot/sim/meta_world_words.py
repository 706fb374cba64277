"""What people say to Meta-World's arm. Its state gives the task away, so this tests no understanding: it only names the task."""

from __future__ import annotations

TASKS: dict[str, tuple[str, ...]] = {
    "reach": ("reach the goal", "move the gripper to the target", "reach to the red dot", "go to the goal position"),
    "push": (
        "push the puck to the goal",
        "push the object to the target",
        "slide the puck to the target",
        "shove the puck over to the goal",
    ),
    "pick-place": (
        "pick up the puck and place it at the goal",
        "lift the object to the target",
        "pick the puck and hold it at the goal",
        "take the puck up to the goal",
    ),
    "drawer-open": ("open the drawer", "pull the drawer open", "pull out the drawer", "slide the drawer out"),
    "drawer-close": ("close the drawer", "push the drawer closed", "shut the drawer", "slide the drawer in"),
    "button-press-topdown": ("press the button", "press the button from the top", "push down the button", "hit the button from above"),
    "window-open": ("open the window", "slide the window open", "push the window open", "get the window open"),
    "window-close": ("close the window", "slide the window closed", "shut the window", "get the window closed"),
    "door-open": ("open the door", "pull the door open", "swing the door open", "get the door open"),
    "peg-insert-side": (
        "insert the peg into the hole",
        "put the peg in the side hole",
        "insert peg sideways",
        "stick the peg into the side of the box",
    ),
}
"""The first is the plain one, the last is kept out of training."""
