"""How TinyFlow's weights are made: a world of captioned scenes, a renderer, a checker, the training stages and the evaluation.

`antiphon train diffusion` runs it; nothing here is needed to serve the model.
"""
