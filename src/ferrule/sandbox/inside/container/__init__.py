"""A command in a container, from outside and from inside: all bytes go over one pair of pipes.

Descriptors cannot be handed into a container where a virtual machine lies in between. So the
engine's own standard input and output carry everything: launches, reports, the command's input
and output, and the connections to the proxy. The container itself has no network.

Modules: `channels`, `first_process`, `relay`.
"""
