"""The paper's fifth experiment: time to move numbers between the host and the GPU, for both scalings.

``python benchmarks/paper/transfer.py`` fits data that lie in the host's memory and reads what `history_` counted: once
the data go to the GPU, later only a few numbers at each stopping test come back. It needs a GPU.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from common import NODES, Setting, data, setting, table, write_csv, write_page
from scaling import HEIGHTS, LEVEL, ROWS, WIDTH, WIDTHS

from psfit import BiCADMM, GridSpec, SparseLinearRegression

# Samples of all nodes together that the host's memory holds twice.
MOST_SAMPLES = 1_200_000


def main() -> None:
    here, _ = setting(__doc__.splitlines()[0])
    if not here.gpu:
        raise SystemExit("this experiment measures transfers to a GPU; there is none here")
    rows = []
    for N in NODES:
        points = [("features", N * ROWS, n) for n in WIDTHS]
        points += [("samples", N * rows, WIDTH) for rows in HEIGHTS if N * rows <= MOST_SAMPLES]
        for kind, m, n in points:
            rows.append(moved(kind, N, m, n, here))
            print(rows[-1], flush=True)
    write_csv(rows, here.file("transfer", "csv"))
    head = ["scaling", "N", "m", "n", "GB sent", "seconds", "GB/s", "iterations", "kB fetched", "ms"]
    body = [
        [
            row["scaling"],
            row["nodes"],
            f"{row['m']:,}",
            f"{row['n']:,}",
            f"{row['sent_bytes'] / 1e9:.3f}",
            f"{row['sent_seconds']:.4f}",
            f"{row['sent_bytes'] / row['sent_seconds'] / 1e9:.1f}",
            row["iterations"],
            f"{row['fetched_bytes'] / 1e3:.2f}",
            f"{1e3 * row['fetched_seconds']:.2f}",
        ]
        for row in rows
    ]
    lines = [f"Fits of float32 arrays in the host's memory, effort low, s_l = {LEVEL}; medians of {here.repeats}.", ""]
    write_page("Transfers between host and GPU", [*lines, *table(head, body)], here.file("transfer", "md"))
    draw(rows, here.file("transfer", "png"))


def moved(kind: str, N: int, m: int, n: int, here: Setting) -> dict:
    """What one fit moves."""
    made = data(m, n, LEVEL, N, here.device)
    X, y = made.A.cpu().numpy(), made.b[:, 0].cpu().numpy()
    model = SparseLinearRegression(
        made.kappa,
        fit_intercept=False,
        solver=BiCADMM(effort="low"),
        grid=GridSpec(nodes=N, device="cuda"),
        certify=False,
    )
    del made
    ends = sorted((model.fit(X, y).history_[-1] for _ in range(here.repeats)), key=lambda record: record.sent_seconds)
    last = ends[len(ends) // 2]
    row = {"scaling": kind, "nodes": N, "m": m, "n": n, "iterations": last.iteration}
    return row | {
        name: getattr(last, name) for name in ("sent_bytes", "sent_seconds", "fetched_bytes", "fetched_seconds")
    }


def draw(rows: list[dict], path: Path) -> None:
    """Time against size, a panel for each scaling."""
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for axes, kind in zip(panels, ("features", "samples"), strict=True):
        for N in NODES:
            mine = [row for row in rows if row["nodes"] == N and row["scaling"] == kind]
            across = [row["n"] if kind == "features" else row["m"] // N for row in mine]
            axes.plot(
                across, [1e3 * (row["sent_seconds"] + row["fetched_seconds"]) for row in mine], "o-", label=f"N = {N}"
            )
        axes.set_xlabel("features n" if kind == "features" else "samples of each node")
        axes.set_ylabel("ms of transfers in a fit")
        axes.set_title(f"Scaling with {kind}")
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=130)
    print(path)


if __name__ == "__main__":
    main()
