"""A property that is computed once for each object.

As `functools.cached_property`, which in Python 3.11 holds a lock of the whole process while it
computes: a child forked in that moment would wait for it for ever. Here nothing is locked, as from
Python 3.12 on; two threads may both compute a value that nobody has yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """A method whose value is kept in the object's dictionary."""

        def __init__(self, function):
            self.function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


__all__ = ["cached_property"]
