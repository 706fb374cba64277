"""Simulated robots, driven in real time over the wire by a live server's policy.

worlds      the world that belongs to a policy, its tasks, and what is said to have them done
driving     a simulated robot under `clients.robot.RobotClient`, several episodes on one connection
planning    which robot plays what
sim         `antiphon robot sim`: many robots against a live server, and the files that are left of it
cli         its command line
progress    what it shows meanwhile
video       robots side by side, drawn from notes afterwards
tracks      what a robot's episode log tells of its chunks
timeline    a picture of that
brush       many small marks on an axis
"""
