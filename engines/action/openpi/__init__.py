"""pi0 and pi0.5 as openpi saves them for PyTorch, behind the `Engine` interface. Needs neither openpi nor jax nor its patched transformers.

checkpoint   what a checkpoint takes and gives: the shapes of its weights, the statistics beside them, and how robots name things
tokens       instructions (and for pi0.5 the state) as tokens of PaliGemma
network      the network: eyes, reader and actor (torch)
model        the network with its checkpoint, as a step policy (torch)
engine       the engine
"""
