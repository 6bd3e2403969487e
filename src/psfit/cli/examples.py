"""Examples that the help of each command ends with."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    # From a table to a report and to predictions: the help of the program itself ends with this.
    "psfit": (
        "psfit inspect sales.csv --target price",
        "psfit path sales.csv --target price --id customer --categories group --missing fill --dates all "
        "--cv 5 --out model.psfit --report report.html",
        "psfit score model.psfit test.csv",
        "psfit predict model.psfit new.csv --out predictions.csv",
        "psfit demo",
    ),
    "inspect": (
        "psfit inspect sales.csv --target price",
        "psfit inspect model.psfit --json",
    ),
    "fit": (
        "psfit fit sales.csv --target price --kappa 8 --out model.psfit",
        "psfit fit sales.csv.gz --target price --exclude 'note*' --id customer --categories group --missing fill "
        "--dates all --out model.psfit",
        "psfit fit visits.parquet --target bought --loss logistic --kappa 10 --report report.html",
        "psfit fit policies.csv --target claims --loss poisson --offset 'log(exposure)' --kappa 6 --out model.psfit",
        "torchrun --standalone --nproc-per-node 4 -m psfit fit parts/ --target price --kappa 20 --out model.psfit",
    ),
    "path": (
        "psfit path sales.csv --target price --kappas 1:30 --out path.csv --picture path.png",
        "psfit path sales.csv --target price --cv 5 --gammas 0.1,1,10 --standardize --out model.psfit",
    ),
    "predict": (
        "psfit predict model.psfit new.csv --out predictions.csv",
        "psfit predict model.psfit new.parquet --proba --out predictions.parquet",
    ),
    "score": (
        "psfit score model.psfit test.csv",
        "psfit score model.psfit test.csv --target price --json",
    ),
    "report": ("psfit report model.psfit test.csv --out report.html",),
    "export": (
        "psfit export model.psfit --out model.sql",
        "psfit export model.psfit --out model.py",
    ),
    "near_optimal": ("psfit near-optimal model.psfit sales.csv --target price --within 0.01 --out list.csv",),
    "federated": (
        "psfit federated simulate job.json north.csv south.csv west.csv",
        "psfit federated server job.json --clients north,south,west --folder run --authority ca.pem "
        "--certificate server.pem --key server.key --out model.psfit",
    ),
    "federated identity": ("psfit federated identity north --out north.identity",),
    "federated roster": (
        "psfit federated roster north.identity.public south.identity.public west.identity.public --out roster.json",
    ),
    "federated server": (
        "psfit federated server job.json --clients north,south,west --folder run --authority ca.pem "
        "--certificate server.pem --key server.key --out model.psfit",
    ),
    "federated client": (
        "psfit federated client north.csv --identity north.identity --roster roster.json "
        "--superlink server.example.org:9093 --authority ca.pem --out model.psfit",
    ),
    "federated simulate": ("psfit federated simulate job.json north.csv south.csv west.csv --out model.psfit",),
    "demo": ("psfit demo --out psfit-demo",),
    "bench": ("psfit bench --loss squared",),
    "compile": ("psfit compile",),
}


def epilogue(command: str) -> str:
    """The examples of a command as the end of its help; an empty line keeps lines apart."""
    lines = [f"$ {line}" for line in EXAMPLES[command]]
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *lines])
