"""What a confined command may reach: hosts by name, through a proxy that checks its connections.

Modules: `allowed_hosts`, `dialing`, `http_heads`, `ip_addresses`, `listener`, `proxy`,
`proxy_peer`.
"""
