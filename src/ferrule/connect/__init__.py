"""Tools from elsewhere: servers that other people wrote, reached by a protocol."""
