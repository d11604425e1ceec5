"""Breaks the code a promise rests on and asks whether the tests that prove the promise notice.

`operators` makes the breakages, `promises` finds the tests of a promise and the code they rest on,
`worker` runs tests over a broken copy of the package where nothing else on the machine can be
harmed, `sample` draws, and `__main__` runs and reports.

Tools that are kept by others were looked at. mutmut switches mutants by a variable of the
environment, which confined commands and workers do not inherit, and cosmic-ray writes into the
working tree and runs one command for every mutant. Neither knows which tests belong to which
promise, which is the question here.
"""
