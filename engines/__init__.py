"""The engine room: the interface behind which every model hides, the pool of replicas and the orchestrator of pipelines.

`interface` and `messages` are the contract; `registry` builds engines by name; `pool` shares their slots out; `orchestrator` runs
pipelines whose stages overlap. Engines live in `ar/` (chat models) and `speech/` (VAD, turn end, ASR, TTS); their weights are named in
`catalogue` and found by `weights`.
"""
