"""Templates of service definitions, rendered by `recalld service install`."""
