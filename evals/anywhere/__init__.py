"""The two commands, `make demo` and `make test`, on the machines that people have: `make anywhere`."""
