"""Pictures and clips: a scheduler that mixes requests at their denoising steps, the models it takes apart, and whole diffusers pipelines.

`engine` batches requests step by step: `scheduling` decides who steps together, `holding` when realtime work goes first, `probe` how many
rows a step has. `step_model` says what a model must offer for that; `models` finds it for a folder: `tinyflow/` is the one that ships,
`training/` its recipe, `flow_steps` takes stock pipelines apart. `invariant` keeps bytes the same in every batch, `cache` skips what has
hardly changed; `bench` measures both. `pipelines/` runs any other diffusers pipeline whole. Everything that needs torch is imported when an
engine is opened, so that a voice server runs without it.
"""
