"""HTML in notebooks: what it says, that it is whole, and that nothing in it is believed."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from browser import needs_chromium, run
from PIL import Image
from sklearn import config_context
from sklearn.pipeline import make_pipeline

import psfit
from psfit import SparseLinearRegression, SparseLinearRegressionCV, TableSource

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(60, 4)), columns=[NASTY, "b", "c", "d"])
    return table.assign(answer=2 * table[NASTY] - table["b"] + 0.2 * rng.normal(size=60))


@pytest.fixture(scope="module")
def shown(frame):
    """Everything that a notebook may show."""
    X, y = frame.drop(columns="answer"), frame["answer"]
    model = SparseLinearRegression(2).fit(TableSource(frame))
    chosen = SparseLinearRegressionCV([1, 2], gammas=[1.0], cv=2, certify=False).fit(X, y)
    return {
        "model": model._repr_mimebundle_()["text/html"],
        "result": model.result_._repr_html_(),
        "path": psfit.sparse_path(X, y, range(1, 5), gammas=[0.1, 1, 2, 3, 4, 5])._repr_html_(),
        "selection": chosen.selection_._repr_html_(),
        "stability": psfit.stability_selection(X, y, [2], resamples=4, random_state=0)._repr_html_(),
        "near optimal": psfit.near_optimal(SparseLinearRegression(2).fit(X, y), X, y, within=3.0)._repr_html_(),
    }


def test_a_model_names_its_features_and_headings_are_not_broken(shown, tmp_path):
    """The support is said by name, as in `summary`."""
    support = re.search(r"<th>support</th><td>(.*?)</td>", shown["model"])[1]
    assert support.endswith(": &lt;script&gt;alert(1)&lt;/script&gt;, b")


@needs_chromium
def test_short_headings_and_numbers_are_on_one_line_on_a_phone(shown, tmp_path):
    page = tmp_path / "page.html"
    find = """<script>const found = [];
    for (const cell of document.querySelectorAll('.psfit-card table:not(.psfit-facts) th:first-child')) {
      const range = document.createRange(); range.selectNodeContents(cell);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      if (lines.size > 1) found.push(cell.textContent);
    }
    document.title = 'broken: ' + found.join(' ');</script>"""
    cards = shown["path"] + shown["selection"]
    page.write_text(f'<meta charset="utf-8"><body><div style="width: 20em">{cards}</div>{find}</body>')
    title = re.search(r"<title>(.*?)</title>", run(page, tmp_path, "--dump-dom").stdout)[1]
    assert title.strip() == "broken:"


class Tags(HTMLParser):
    """Tags that are open, and references to other files."""

    def __init__(self, html):
        super().__init__()
        self.open, self.references = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.references += [value for name, value in attributes if name in ("src", "action")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["model", "result", "path", "selection", "stability", "near optimal"])
def test_html_is_whole_alone_and_escaped(shown, name):
    # After our own part a model has scikit-learn's.
    html, card = shown[name], shown[name].split("<details>")[0]
    tags = Tags(card)
    assert not tags.open
    assert not tags.references
    assert NASTY not in html
    # Colours of the notebook, so that dark ones work; nothing outside the card is styled.
    assert not re.search(r"(?<![-\w])color:(?! inherit)", card)
    style = re.search("<style>(.*?)</style>", card, re.DOTALL).group(1)
    assert all(".psfit-card" in rule for rule in re.findall(r"([^{}]+)\{", style))


def test_html_says_what_the_text_says(shown, frame):
    model = SparseLinearRegression(2).fit(TableSource(frame))
    for name in ("model", "result"):
        assert f"{model.objective_:.8g}" in shown[name]
        assert "CONVERGED" in shown[name] or "SETTLED" in shown[name]
    assert "<td>answer</td>" in shown["model"]
    assert f"{model.coef_[0]:.6g}" in shown["model"]
    assert "4 more limits are not shown" in shown["path"]
    assert shown["selection"].count('<tr class="psfit-chosen">') == 1
    assert "chosen in" in shown["stability"]
    assert "in how many" in shown["near optimal"]


def test_scikit_learns_html_is_kept():
    model = SparseLinearRegression(2)
    before = model._repr_mimebundle_()["text/html"]
    assert "sk-top-container" in before
    assert "psfit-card" not in before
    model.fit(np.eye(4), np.arange(4.0))
    after = model._repr_mimebundle_()["text/html"]
    assert after.startswith("<style>\n.psfit-card")
    assert "sk-top-container" in after
    assert model._repr_html_()[:100] == after[:100]
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]
    assert "SparseLinearRegression" in make_pipeline(model)._repr_mimebundle_()["text/html"]


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_in_light_and_dark(shown, tmp_path, dark):
    colors = "background: #111; color: #eee" if dark else "background: #fff; color: #111"
    page = tmp_path / "notebook.html"
    parts = "".join(shown[name] for name in ("result", "path", "selection", "stability", "near optimal"))
    page.write_text(f'<!DOCTYPE html><body style="{colors}">{parts}</body>')
    run(page, tmp_path, "--window-size=900,2000", f"--screenshot={tmp_path / 'page.png'}")
    with Image.open(tmp_path / "page.png") as image:
        pixels = np.asarray(image.convert("L")).astype(float)
    ground = np.median(pixels)
    assert (ground < 60) == dark
    # Text in the colour of the notebook.
    assert 0.01 < np.mean(np.abs(pixels - ground) > 150) < 0.3
