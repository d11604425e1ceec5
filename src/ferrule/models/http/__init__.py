"""HTTP/1.1 for model clients and web requests: connections, proxies, retries and streams.

Modules: `connection`, `dialing`, `http1`, `proxies`, `retry`, `server_sent_events`,
`streaming`, `transport`, `web_request`.
"""
