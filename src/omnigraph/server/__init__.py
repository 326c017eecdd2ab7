"""HTTP: routes, tokens, admission, streaming. The only home of the web framework."""
