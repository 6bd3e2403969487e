"""Messages in the words of the command line: options in place of arguments, and losses in place of classes."""

import re

# The arguments that have another name as an option.
OPTIONS = {
    "sample_weight": "--weight",
    "ids": "--id",
    "exclude_features": "--exclude-features",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            "kappa", "kappas", "gamma", "gammas", "cv", "scoring", "target", "offset", "columns", "exclude", "include",
            "categories", "dates", "missing", "new_levels", "memory", "power", "standardize", "lower", "upper",
            "positive", "groups", "kappa_counts", "at_most", "heredity", "count_included", "max_iter", "time_limit",
            "gap_tol", "effort", "checkpoint", "checkpoint_every", "nodes", "blocks", "backend", "device", "dtype",
            "timeout", "one_standard_error", "within",
        )
    },
}  # fmt: skip
# The loss that an estimator fits; estimators of several losses fit the first of them by default.
LOSSES = {
    "LinearRegression": "squared",
    "LogisticRegression": "logistic",
    "SoftmaxRegression": "softmax",
    "SVC": "squared_hinge",
    "PoissonRegression": "poisson",
    "GammaRegression": "gamma",
    "TweedieRegression": "tweedie",
}
CLASS = r"Sparse(\w+?)(?:CV)?\b"
# What an argument may be in Python alone.
ONLY_PYTHON = re.compile(r", or (?:None|a splitter or pairs of indices|a callable)(?=[,;.]|$)")
RULES = [
    # Where a message has both, the option is enough; so it is for switches.
    (re.compile(rf"(--loss \w+) \({CLASS}\)"), r"\1"),
    (re.compile(rf"{CLASS} \((--loss \w+)\)"), r"\2"),
    (re.compile(r"\bBiCADMM\(exact=True\)"), "--exact"),
    (re.compile(r"\b(count_included|standardize|positive|one_standard_error)=True"), r"--\1"),
    (re.compile(r"\bcertify=True"), "--certify"),
    (re.compile(r"\bn_features=(\d+)"), r"\1 features"),
    # Constraints and tables have an argument of the same name.
    (re.compile(r"\bexclude=(?=.*there is no feature)"), "exclude_features="),
]
# An argument with its value; in brackets, after an option, it is meant for Python.
ARGUMENT = re.compile(rf"(?<!--csv )(?<![\w(\[.'])({'|'.join(OPTIONS)})=(?=\S)")
WEIGHT = re.compile(r"\bsample_weight\b")


def translate(message: str) -> str:
    """A message of the library as a user of the command line understands it."""
    text = ONLY_PYTHON.sub("", message)
    for pattern, words in RULES:
        text = pattern.sub(words, text)
    text = re.sub(CLASS, lambda found: f"--loss {LOSSES[found[1]]}" if found[1] in LOSSES else found[0], text)
    text = ARGUMENT.sub(lambda found: f"{OPTIONS[found[1]]} ", text)
    text = WEIGHT.sub("--weight", text)
    return re.sub(r"--(count_included|one_standard_error)\b", lambda found: found[0].replace("_", "-"), text)
