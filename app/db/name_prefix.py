"""Names that begin with a text, as a range of an index. A plan for all values of LIKE would read every name. Pure."""

_LAST = "\U0010ffff"  # no name that begins with a text comes after the text with this


def begins(column: str) -> str:
    """The condition, with the parameters `name` and `name_end`, for an index with `text_pattern_ops`."""
    return f"{column} ~>=~ %(name)s and {column} ~<~ %(name_end)s"


def end(prefix: str) -> str:
    """`name_end` of a prefix, which is `name`; empty for none."""
    return prefix and prefix + _LAST
