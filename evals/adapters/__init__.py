"""The adapters in the environments of the frameworks they are for: `make lab NAME=adapters`.

Each framework has an environment of its own, with the versions that `__main__` names. There run the
adapter's tests, with the framework's own test model, and the programs that load tools which nobody
here wrote.

Modules: `community_tools`, `plugin_tools`.
"""
