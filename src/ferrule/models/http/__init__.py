"""HTTP/1.1 for model clients and web requests.

Two stacks share the parser of `http1`, which alone reads answers, and `proxies`:

* `transport` (over `connection`, `retry`, `server_sent_events`, `streaming`) keeps
  connections to model servers and streams their answers;
* `dialing` and `web_request` open one connection per request of a tool or script, to a host that
  was checked.
"""
