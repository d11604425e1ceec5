"""The pages of the console: a module each, with `routes(console)`."""
