"""Pictures and clips: a scheduler that mixes requests at their denoising steps, the models it takes apart, and whole diffusers pipelines.

`step_model` says what a model must offer to be batched step by step; `tinyflow/` is the one that ships, `training/` its recipe. Everything
here that needs torch is imported when an engine of the kind is built, so that a voice server runs without it.
"""
