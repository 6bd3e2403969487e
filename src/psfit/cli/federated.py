"""``psfit federated``: fits over data that stay with their clients."""

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from psfit.cli.examples import epilogue

federated = typer.Typer(
    help="Fit over private data of several clients, on Flower.",
    epilog=epilogue("federated"),
    no_args_is_help=True,
)

JobFile = Annotated[Path, typer.Argument(help="JSON file: estimator, arguments, columns, target, classes, questions.")]
Plain = Annotated[
    bool, typer.Option("--plain", help="Send numbers without masks: the server sees every client's numbers.")
]
MinClients = Annotated[int, typer.Option(help="The smallest number of clients in a sum.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for late clients in an iteration.")]
Patience = Annotated[
    float, typer.Option(help="Seconds to wait for a client that a sum needs; after that it counts as having left.")
]
Authority = Annotated[Path | None, typer.Option(help="Certificate of the authority (PEM).")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Do not use TLS; for tests on one machine.")]
Out = Annotated[Path | None, typer.Option(help="Model file to write.")]


@federated.command()
def identity(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    out: Annotated[Path, typer.Option(help="File for the secret key.")],
    may_leave: Annotated[
        bool, typer.Option("--may-leave", help="If this client stays away, the others may go on without it.")
    ] = False,
) -> None:
    """Make the identity of a client: a secret file, and a public file beside it for the roster."""
    from psfit.federated.identities import Identity

    made = Identity.create(name, may_leave)
    made.save(out)
    public = out.with_name(out.name + ".public")
    made.public.save(public)
    print(f"{out} is secret and stays here; give {public} to the others in a way that they can trust")


@federated.command()
def roster(
    clients: Annotated[list[Path], typer.Argument(help="Public files of all clients, in order.")],
    out: Annotated[Path, typer.Option(help="File for the roster.")],
) -> None:
    """Make the roster of a federation; all clients need a copy, and the server must not have one."""
    from psfit.federated.identities import Public, Roster

    made = Roster.create(Public.load(path) for path in clients)
    made.save(out)
    print(f"{out} pins {', '.join(made.names)}; give it to these clients, not to the server")


@federated.command()
def server(
    job: JobFile,
    clients: Annotated[str, typer.Option(help="Names of the clients, in the order of the roster: a,b,c.")],
    folder: Annotated[Path, typer.Option(help="Folder of the run: checkpoint, logs, model.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 9093,
    certificate: Annotated[Path | None, typer.Option(help="This server's certificate (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(help="The private key of this server (PEM).")] = None,
    authority: Authority = None,
    insecure: Insecure = False,
    plain: Plain = False,
    min_clients: MinClients = 3,
    timeout: Timeout = 60.0,
    patience: Patience = 3600.0,
    out: Out = None,
) -> None:
    """Start a SuperLink, run a job over the clients, and write the model; goes on with a run that was stopped."""
    import psfit
    from psfit.federated.deployment import serve_run
    from psfit.federated.files import ANSWERS, MODEL
    from psfit.federated.job import Job
    from psfit.federated.launch import Certificates
    from psfit.federated.questions import from_facts
    from psfit.federated.settings import ServerSettings

    _start_log()
    given = [authority, certificate, key]
    if insecure == any(given) or (any(given) and not all(given)):
        raise ValueError("--authority, --certificate, --key: give all three for TLS, or --insecure instead")
    files = None if insecure else Certificates(*(_require_file(path) for path in given))
    settings = ServerSettings(not plain, min_clients, timeout, patience)
    facts = serve_run(Job.load(job), clients.split(","), settings, folder, host, port, files)
    model = psfit.load(folder / MODEL)
    answers = json.loads((folder / ANSWERS).read_text())
    _show(model, {kind: from_facts(kind, one, model) for kind, one in answers.items()}, out, **facts)


@federated.command()
def client(
    data: Annotated[Path, typer.Argument(help="This client's samples: a table with the columns of the job.")],
    identity: Annotated[Path, typer.Option(help="This client's identity.")],
    superlink: Annotated[str, typer.Option(help="The server, host:port.")],
    roster: Annotated[Path | None, typer.Option(help="The roster of the federation.")] = None,
    job: Annotated[
        Path | None, typer.Option(help="Take part in this job only: the same JSON file as on the server.")
    ] = None,
    authority: Authority = None,
    insecure: Insecure = False,
    plain: Plain = False,
    min_clients: MinClients = 3,
    patience: Patience = 3600.0,
    log: Annotated[Path, typer.Option(help="File for the messages of Flower's SuperNode.")] = Path("supernode.log"),
    out: Out = None,
) -> None:
    """Take part in one run with the samples of a file, and write the model."""
    from psfit.federated.deployment import join_run, read_samples
    from psfit.federated.identities import Identity, Roster
    from psfit.federated.job import Job
    from psfit.federated.worker import Policy, Worker

    _start_log()
    if insecure == (authority is not None):
        raise ValueError("--authority: give the certificate for TLS, or --insecure instead")
    if roster is None and not plain:
        raise ValueError("--roster: secure sums need the roster; with --plain the server sees this client's numbers")
    pinned = None if roster is None else Roster.load(roster)
    policy = Policy(not plain, min_clients, None if job is None else Job.load(job))
    worker = Worker(Identity.load(identity), lambda asked: read_samples(data, asked), pinned, policy)
    answer, clients = join_run(worker, superlink, authority, log, patience)
    _show(answer.model, answer.found, out, clients=list(clients))


@federated.command()
def simulate(
    job: JobFile,
    data: Annotated[list[Path], typer.Argument(help="One table for each client.")],
    plain: Plain = False,
    min_clients: MinClients = 3,
    out: Out = None,
) -> None:
    """Run a job over several files on this machine, each the data of a client."""
    from psfit.federated import Job, ServerSettings
    from psfit.federated import simulate as run
    from psfit.federated.deployment import read_samples

    loaded = Job.load(job)
    if len({path.stem for path in data}) != len(data):
        raise ValueError("DATA: clients are named after their files; give the files different names")
    samples = {path.stem: read_samples(path, loaded) for path in data}
    found = run(loaded, samples, ServerSettings(not plain, min_clients))
    _show(found.model, found.answers, out, **found.outcome.as_facts())


def _show(model: Any, answers: dict[str, Any], out: Path | None, **facts: Any) -> None:
    """Write the model, and print it with the answers to questions as tables."""
    import psfit

    if out is not None:
        psfit.save(model, out)
    head = {"objective": model.objective_, "gap": model.gap_, "support": model.support_.tolist()}
    tables = {kind: found.rows() for kind, found in answers.items()}
    print(json.dumps(head | facts | {"answers": tables}, indent=1, default=str))


def _require_file(path: Path | None) -> Path:
    if path is None or not path.is_file():
        raise ValueError(f"there is no file {path}")
    return path.absolute()


def _start_log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
