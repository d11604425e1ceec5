"""Typed answers under poor manners: 40 output types, 4 modes, streaming or not.

    make lab NAME=outputs                     with Pydantic AI and Instructor on the same server
    make lab NAME=outputs ARGS="--alone"      without them

A scripted model gives each type's value in each manner. What comes out is the right value, the right
error, or a fault; a wrong value is the worst of them. Modules: `types_asked`, `manners`, `play`; the
same over a socket, with peers: `server`, `worker`, `peers`. What values cost while they arrive:
`partial`.
"""
