"""The headers that keep a page harmless whatever text it shows. Pure."""


def policy(nonce: str) -> str:
    """The Content-Security-Policy of one page. No style attribute, no inline script without the nonce, nothing from elsewhere."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types htmx",
        )
    )


def headers(nonce: str) -> dict[str, str]:
    """The headers of every answer of the console."""
    return {
        "content-security-policy": policy(nonce),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }


def same_origin(fetch_site: str | None, origin: str | None, own: str) -> bool:
    """Whether an unsafe request comes from a page of ours. `own`: our origin. A request that shows neither header does not."""
    if fetch_site is not None:
        return fetch_site == "same-origin"
    return origin is not None and origin == own
