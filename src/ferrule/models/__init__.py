"""A wire each: request out, stream in, capabilities; and the ways to call tools for models without them."""
