"""What all our HTTP servers share: access control, signing in, and serving on an address.

Modules: `endpoint` (an application at an address, its JSON and events), `http_security`, `mounting`
(inside another application), `server`, `sign_in`, `work_limits`.
"""
