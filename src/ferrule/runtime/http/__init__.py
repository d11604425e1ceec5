"""What all HTTP servers of ours share: who may come in, signing in, and serving on an address.

Modules: `cookies`, `http_security`, `server`, `sign_in`.
"""
