"""Whole diffusers pipelines as an engine: any of them, from a folder or the hub, one request at a time, stopped between steps.

options     what the configuration may say
source      where a pipeline's files are, and its JSON files without torch
facts       what those files tell: pictures or clips, sizes, frames
loading     the pipeline itself, on its device
arguments   a request as the arguments of the pipeline's own `__call__`
steps       being called after each step: progress, previews, the gate, the stop
previews    what the picture would be now, from the latents
output      the pipeline's result as frames of bytes
turns       one at a time, the most urgent first
run         one request on its thread
threaded    the runner that calls the pipeline on a thread
apart       the runner of pipelines that only a killed process stops
"""
