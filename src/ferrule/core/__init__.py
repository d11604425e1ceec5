"""Values and the machine: what a run *is*. No I/O, no clock, no threads, no library but the type system."""
