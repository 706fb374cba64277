"""Policies that were trained with lerobot, behind the `Engine` interface.

    checkpoint   what a checkpoint takes and gives, read from its JSON files alone: the gateway needs no lerobot for that
    loading      the policy and its processors, made by lerobot from the checkpoint's files
    policies     lerobot's policies as step policies: ACT, Diffusion Policy, and whatever else makes chunks
    smolvla      SmolVLA as a step policy
    engine       the engine

lerobot pins torch and much else, so its engine usually runs in a process of its own with another interpreter, which has lerobot and this
package. Only what comes with lerobot 0.4 is imported, and only when a policy is opened.
"""
