"""The plugin `registration`: sessions may gain tools, hooks and agents while they run."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, PartsInternals, Setup

from .registration import RegistrationLimits


@frozen
class Registering:
    """Lets sessions gain tools, hooks and agents (`Context.resource(Registration)`), and delegate.

    Attributes:
        limits: How much one session may gain.
    """

    name: ClassVar[str] = "registration"
    limits: RegistrationLimits = field(default_factory=RegistrationLimits)

    def setup(self, setup: Setup) -> Parts:
        """Return the limits."""
        return Parts(internals=PartsInternals(registration=self.limits))
