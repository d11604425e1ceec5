"""Models with native tools and poor habits: how many runs finish all the same, with Ferrule and
with others.

`orders` is the task, `habits` what models do wrong, `play` one model at work, `server` its wire,
`worker` a framework that works with it, `run` the whole: `PYTHONPATH=evals python -m faults`.
"""
