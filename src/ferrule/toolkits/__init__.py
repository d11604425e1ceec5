"""Tools that ship. Each module offers `TOOLS`; none is registered by importing it."""
