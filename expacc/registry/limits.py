"""What numbers the losses allow, as people write it; a test holds the losses to it."""

LIMITS = {
    **dict.fromkeys(("ce_weight", "error_weight", "rce_weight", "mae_weight", "leak"), "≥ 0"),
    **dict.fromkeys(("active_weight", "passive_weight", "negative_weight"), "≥ 0"),
    **dict.fromkeys(("gamma", "alpha", "taming"), "≥ 0"),
    **dict.fromkeys(("a", "q", "sigma", "margin", "boost", "scale"), "> 0"),
    **dict.fromkeys(("truncation", "threshold", "label_share", "floor"), "in (0, 1)"),
    **dict.fromkeys(("power", "terms", "t2"), "≥ 1"),
    "focus": "in [0, 0.5]",
    "t1": "in [0, 1]",
    "epsilon": "≥ -1",
    "shift": "any",
    "generalized_cross_entropy q": "in (0, 1]",
    "asymmetric_unhinged a": "> 1",
    "normalized_and_asymmetric_unhinged a": "> 1",
}


def limits_of(loss: str, number: str) -> str:
    """What a number of a loss may be, such as '> 0' or 'in (0, 1]'.

    >>> limits_of("generalized_cross_entropy", "q")
    'in (0, 1]'
    """
    return LIMITS.get(f"{loss} {number}") or LIMITS[number]
