"""Policies that turn observations into action chunks, for many robots at once.

    card          what a policy is, beside its weights: shapes, normalisation, limits
    prompts       instructions as hashed bags of words: no vocabulary, no tokenizer
    step_policy   what a policy must offer so that robots at different integration steps share its forward passes
    turns         who takes part in the next step: earliest deadline first
    compute       the one thread that steps, with a way in, a way out and an abort at each step
    network       the flow-matching network (torch)
    vision        the eyes of policies that see (torch)
    flow_model    the network with its card, as a step policy (torch)
    mail          from that thread to the event loop
    step_engine   a step policy behind the `Engine` interface
    flow_policy   the engine of the policies that come with this package
    lerobot       the engine of lerobot's checkpoints
    openpi        the engine of openpi's checkpoints for PyTorch
    digest        weights held against a digest
    serial        a policy without any of this, on openpi's own server: what ours is measured against

torch is imported when a policy is opened, so that a server without robots runs without it.
"""
