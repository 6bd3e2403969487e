"""Reports: what the page shows, that it needs no other file, and how a browser shows it."""

import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from browser import after, console, needs_chromium, run
from console import psfit as psfit_script
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.metrics import confusion_matrix, d2_tweedie_score, r2_score

import psfit
from psfit import BiCADMM

IRIS = load_iris(as_frame=True)
TWO = np.where(IRIS.target == 2, "virginica", "other")
THREE = np.array(["setosa", "versicolor", "virginica"])[IRIS.target]
# Names that must be escaped: markup, quotes, formulas, names that legends hide, other scripts.
NASTY = ["<script>alert(1)</script>", "a\"b'c&amp;", "$x_1$ and $", "_hidden\tname", "温度 ℃ 'é'", "x" * 300]
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What a test asks of a page: its text, tables, ids, references and whether every tag is closed."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tables, self.ids, self.references, self.tags, self.open = [], {}, [], [], [], []
        self.charts, self.sections, self.rows = [], [], None
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._note(tag, given)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self._note(tag, dict(attributes))

    def _note(self, tag, given):
        if "id" in given:
            self.ids.append(given["id"])
        self.references += [given[name] for name in ("src", "href", "xlink:href", "action") if name in given]
        if tag == "svg":
            self.charts.append(given)
        elif tag == "section":
            self.sections.append(given["id"])
        elif tag == "table":
            self.rows = self.tables.setdefault(given.get("id", len(self.tables)), [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open or "style" in self.open:
            return
        self.text.append(data)
        if self.rows and ({"td", "th"} & set(self.open[-2:])):
            self.rows[-1][-1] += data.strip()

    @property
    def said(self):
        return " ".join(" ".join(self.text).split())

    def table(self, name):
        head, *rows = self.tables[name]
        return pd.DataFrame(rows, columns=head)


def psfit_says(*arguments, cwd):
    done = psfit_script(*arguments, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def number(text):
    return float(text.replace("−", "-").replace(",", "").removesuffix("\u00a0%"))


def require_alone(html):
    """Nothing is fetched, no id is there twice, and charts have a description."""
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    for reference in page.references:
        assert reference.startswith("#") or reference == "data:,"
        assert reference == "data:," or reference[1:] in page.ids
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"url\((?!#)|@import", html)
    for used in re.findall(r"url\(#([^)]*)\)", html):
        assert used in page.ids
    assert all(chart["role"] == "img" and chart["aria-label"] for chart in page.charts)
    return page


@cache
def fitted(name):
    X, y = IRIS.data, IRIS.target
    makers = {
        "linear": lambda: psfit.SparseLinearRegression(2).fit(X, y),
        "huber": lambda: psfit.SparseLinearRegression(2, loss="huber", huber_delta=0.7).fit(X, y),
        "targets": lambda: psfit.SparseLinearRegression(2, certify=False).fit(X, np.column_stack([y, X.iloc[:, 0]])),
        "shared": lambda: psfit.SparseLinearRegression(2, sparsity="feature").fit(X, np.column_stack([y, -y])),
        "poisson": lambda: psfit.SparsePoissonRegression(2).fit(X, y),
        "logistic": lambda: psfit.SparseLogisticRegression(2, class_weight="balanced").fit(X, TWO),
        "softmax": lambda: psfit.SparseSoftmaxRegression(5).fit(X, THREE),
        "svc": lambda: psfit.SparseSVC(2, loss="hinge").fit(X, TWO),
        "svc, three": lambda: psfit.SparseSVC(2).fit(X, THREE),
        "linear, chosen": lambda: psfit.SparseLinearRegressionCV([1, 2], gammas=[0.1, 1]).fit(X, y),
        "logistic, chosen": lambda: psfit.SparseLogisticRegressionCV([1, 2], scoring="accuracy").fit(X, TWO),
        "softmax, chosen": lambda: psfit.SparseSoftmaxRegressionCV([2, 3], cv=2).fit(X, THREE),
        "poisson, chosen": lambda: psfit.SparsePoissonRegressionCV([1, 2], criterion="bic").fit(X, y),
    }
    return makers[name]()


KINDS = ["linear", "huber", "targets", "shared", "poisson", "logistic", "softmax", "svc", "svc, three"]
SELECTING = [f"{name}, chosen" for name in ("linear", "logistic", "softmax", "poisson")]


@pytest.mark.parametrize("name", [*KINDS, *SELECTING])
def test_every_model_has_a_page(name, tmp_path):
    model = fitted(name)
    html = psfit.report(model)
    page = require_alone(html)
    # A file of the model holds all that the page needs.
    psfit.save(model, tmp_path / "model.psfit")
    assert psfit.report(psfit.load(tmp_path / "model.psfit")) == html
    table = page.table("coefficient-table").set_index("feature")
    used = [IRIS.data.columns[j] for j in model.support_]
    assert sorted(table.index) == sorted(["(intercept)", *used])
    outputs = model.result_.coef.shape[1]
    shown = table.iloc[:, :outputs].map(number)
    np.testing.assert_allclose(shown.loc[used], model.result_.coef[model.support_], rtol=1e-3)
    np.testing.assert_allclose(shown.loc["(intercept)"], model.result_.intercept, rtol=1e-3)
    assert type(model).__name__ in page.said
    assert model.result_.status.value in page.said
    assert ("choice" in page.sections) == ("chosen" in name)
    assert "certificate" in page.sections
    assert psfit.__version__ in page.said


def test_the_page_of_a_model_file(tmp_path):
    model = fitted("linear, chosen")
    psfit.save(model, tmp_path / "model.psfit")
    code, out, err = psfit_says("report", "model.psfit", "--out", "page.html", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "page.html" in out
    assert (tmp_path / "page.html").read_text() == psfit.report(model)
    assert psfit_says("report", "model.psfit", "--quiet", cwd=tmp_path) == (0, "", "")
    assert (tmp_path / "report.html").read_text() == psfit.report(model)


def test_the_words_of_a_problem():
    said = Page(psfit.report(fitted("huber"))).said
    assert "0.7: larger residuals count linearly" in said
    assert "150 samples by 4 features" in said
    for name, expected in (
        ("svc, three", "at most 2 nonzero coefficients for each class against the rest"),
        ("targets", "at most 2 nonzero coefficients for each target"),
        ("softmax", "at most 5 nonzero coefficients over all classes together"),
        ("shared", "at most 2 features, which all targets may use"),
        ("logistic", "balanced"),
    ):
        assert expected in Page(psfit.report(fitted(name))).said


class TestCertificate:
    def test_none(self):
        said = Page(psfit.report(fitted("targets"))).said
        assert "no proof was asked for" in said
        assert "certify=True" in said

    def test_wide(self):
        model = psfit.SparseLogisticRegression(2, gamma=1000.0, standardize=True).fit(IRIS.data, TWO)
        assert model.gap_ > 0.05
        said = Page(psfit.report(model)).said
        assert "open: the bound is wide" in said
        assert "exact=True" in said
        assert "A smaller gamma always tightens the bound" in said

    def test_proved(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 8))
        model = psfit.SparseLinearRegression(2, solver=BiCADMM(exact=True)).fit(X, X[:, 1] - X[:, 5])
        assert model.gap_ <= 1e-4
        said = Page(psfit.report(model)).said
        assert "proved: " in said
        assert "What to do about it" not in said


@pytest.mark.parametrize("labels", [["<b>yes</b>", 'no & "never"'], ["ja", "né 是"]])
def test_names_are_shown_and_never_believed(labels, tmp_path):
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(80, len(NASTY))), columns=NASTY)
    y = np.array(labels)[(X.sum(axis=1) > 0).astype(int)]
    model = psfit.SparseLogisticRegression(len(NASTY)).fit(X, y)
    psfit.report(model, tmp_path / "page.html", X, y)
    for html in (
        (tmp_path / "page.html").read_text(),
        psfit.report(psfit.SparseLogisticRegressionCV([1, 6], cv=2).fit(X, y)),
        psfit.report(psfit.sparse_path(X, y, [1, 3, 6], loss="logistic")),
    ):
        page = require_alone(html)
        assert page.tags.count("script") == 1
        assert "b" not in page.tags
    page = Page((tmp_path / "page.html").read_text())
    table = page.table("coefficient-table")
    assert {name.strip() for name in NASTY} == set(table["feature"]) - {"(intercept)"}
    for label in labels:
        assert label in page.said


def test_samples_are_summed_up_and_scored(tmp_path, monkeypatch):
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X.assign(answer=y).to_csv(tmp_path / "data.csv", index=False)
    options = ["--target", "answer", "--kappa", 3, "--device", "cpu", "--standardize", "--out", "model.psfit"]
    code, out, err = psfit_says("fit", "data.csv", *options, "--report", "page.html", cwd=tmp_path)
    assert code == 0, err
    assert re.search(r"report +page.html", out)
    page = require_alone((tmp_path / "page.html").read_text())
    model = psfit.load(tmp_path / "model.psfit")
    table = page.table("coefficient-table").set_index("feature")
    for j in model.support_:
        shown = table.loc[X.columns[j]].map(number)
        column = X.iloc[:, j]
        expected = [model.coef_[j], column.mean(), column.std(ddof=0), model.coef_[j] * column.std(ddof=0)]
        np.testing.assert_allclose(shown, expected, rtol=1e-3)
    score = re.search(r"R² ([\d.]+) root mean squared error ([\d.]+) mean loss ([\d,.]+)", page.said)
    squares = np.mean((model.predict(X) - y) ** 2)
    expected = [r2_score(y, model.predict(X)), np.sqrt(squares), squares]
    np.testing.assert_allclose([number(part) for part in score.groups()], expected, rtol=1e-3)
    assert f"mean {y.mean():.6g}, standard deviation {y.std(ddof=0):.6g}" in page.said
    # What was typed is shown, and what makes the same in Python.
    assert "psfit fit data.csv --target answer --kappa 3" in page.said
    recipe = re.search(r"from psfit import [^\n]*Sparse.*?model.fit\(source\)", "".join(page.text), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(recipe.group(), names)
    np.testing.assert_allclose(names["model"].coef_, model.coef_, rtol=1e-9)
    # Later, from the file and other samples.
    X.iloc[:50].assign(answer=y[:50]).to_csv(tmp_path / "fewer.csv", index=False)
    code, _, err = psfit_says(
        "report", "model.psfit", "fewer.csv", "--target", "answer", "--out", "b.html", cwd=tmp_path
    )
    assert (code, err) == (0, "")
    page = Page((tmp_path / "b.html").read_text())
    assert "50 samples, 10 features" in page.said
    assert f"R² {r2_score(y[:50], model.predict(X[:50])):.4g}" in page.said


def test_classes_are_counted_and_confused():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    labels = np.array(["malignant", "benign"])[y]
    weights = np.random.default_rng(0).uniform(size=len(y))
    model = psfit.SparseLogisticRegression(2, standardize=True).fit(X, labels)
    page = require_alone(psfit.report(model, None, X, labels, sample_weight=weights))
    counts, confusion = (page.tables[place] for place in (1, 2))
    assert [row[:2] for row in counts[1:]] == [["benign", "357"], ["malignant", "212"]]
    expected = confusion_matrix(labels, model.predict(X))
    np.testing.assert_array_equal(np.array([row[1:] for row in confusion[1:]], dtype=int), expected)
    accuracy = model.score(X, labels, weights)
    assert f"accuracy {accuracy:.4g}" in page.said
    ratio = page.table("coefficient-table").set_index("feature")["odds ratio per SD"]
    j = model.support_[0]
    assert number(ratio[X.columns[j]]) == pytest.approx(np.exp(model.coef_[0, j] * X.iloc[:, j].std(ddof=0)), rel=1e-3)


def test_a_path_and_a_choice(tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X.assign(answer=y).to_csv(tmp_path / "data.csv", index=False)
    shared = ["data.csv", "--target", "answer", "--standardize", "--kappas", "1:4", "--device", "cpu", "--quiet"]
    code, out, err = psfit_says("path", *shared, "--report", "path.html", cwd=tmp_path)
    assert (code, out, err) == (0, "", "")
    page = require_alone((tmp_path / "path.html").read_text())
    expected = psfit.sparse_path(X, y, [1, 2, 3, 4], standardize=True)
    table = page.table("path-table")
    assert table["kappa"].map(number).tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(table["objective"].map(number), expected.objectives[0], rtol=1e-6)
    support = set()
    for k, moves in enumerate(table["features"]):
        for move in moves.split(", "):
            (support.add if move[0] == "+" else support.remove)(move[1:])
        assert support == set(X.columns[expected.support(k + 1)])
    code, _, err = psfit_says("path", *shared, "--cv", "3", "--report", "choice.html", cwd=tmp_path)
    assert (code, err) == (0, "")
    page = require_alone((tmp_path / "choice.html").read_text())
    chosen = psfit.SparseLinearRegressionCV(range(1, 5), cv=3, standardize=True).fit(X, y)
    assert f"kappa = {chosen.kappa_} and gamma = {chosen.gamma_:g} were chosen" in page.said
    values = page.table("choice-table").iloc[:, 2].map(number)
    np.testing.assert_allclose(values, -chosen.selection_.scores.ravel(), rtol=1e-4)
    assert {"answer", "coefficients", "choice", "certificate", "data", "convergence"} <= set(page.sections)


def test_many_features_stay_readable():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 500))
    model = psfit.SparseLinearRegression(500, certify=False).fit(X, X.sum(axis=1))
    page = require_alone(psfit.report(model))
    assert len(page.table("coefficient-table")) == 501
    assert "The largest 40 are drawn; the table has 460 more." in page.said


def test_equal_models_make_equal_pages(tmp_path):
    model = fitted("linear, chosen")
    assert psfit.report(model, tmp_path / "page.html") is None
    assert psfit.report(model) == (tmp_path / "page.html").read_text()
    assert list(tmp_path.iterdir()) == [tmp_path / "page.html"]


def test_who_only_fits_does_not_wait_for_matplotlib():
    program = "import psfit, psfit.cli, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_model_without_features_or_iterations():
    X, y = np.ones((20, 2)), np.arange(20.0)
    model = psfit.SparseLinearRegression(1).fit(X, y)
    page = require_alone(psfit.report(model, None, X, y))
    assert "The model uses no feature" in page.said or len(model.support_)
    assert "2 are constant" in page.said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.psfit"], "missing.psfit"),
        (["damaged.psfit"], "damaged.psfit is damaged"),
        (["model.psfit", "--out", "page.pdf"], "--out: a report is an HTML page, so 'page.pdf' must end with .html"),
        (["model.psfit", "--out", "nowhere/page.html"], "--out: there is no folder"),
        (["model.psfit", "--out", "folder.html"], "--out: folder.html is a folder"),
        (["model.psfit", "--target", "y"], "--target, --weight and --offset belong to data files"),
        (["model.psfit", "missing.csv"], "there is no file missing.csv"),
        (["model.psfit", "other.csv"], "the model needs 4 column(s) that are not there"),
        (["model.psfit", "labels.csv", "--target", "kind"], "column 'kind' holds the label 'unheard' in row 0"),
    ],
)
def test_mistakes_are_said_in_one_line(arguments, said, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    psfit.save(fitted("logistic"), tmp_path / "model.psfit")
    whole = (tmp_path / "model.psfit").read_bytes()
    (tmp_path / "damaged.psfit").write_bytes(whole[:200] + b"x" + whole[201:])
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    IRIS.data.assign(kind="unheard").to_csv(tmp_path / "labels.csv", index=False)
    before = sorted(tmp_path.iterdir())
    code, out, err = call("report", *arguments)
    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("psfit: error: ")
    assert said in err
    assert sorted(tmp_path.iterdir()) == before


def test_mistakes_are_noticed_before_the_fit(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("a,b\n1,2\n2,3\n3,5\n")
    for command in ("fit", "path"):
        code, _, err = call(command, "data.csv", "--report", "page.txt")
        assert code == 1
        assert "--report: a report is an HTML page" in err


def test_mistakes_in_python():
    with pytest.raises(ValueError, match="not fitted yet"):
        psfit.report(psfit.SparseSVC())
    with pytest.raises(TypeError, match="must be a fitted PsFiT model or a SparsePath"):
        psfit.report("model.psfit")
    model = fitted("linear")
    with pytest.raises(ValueError, match="file: a report is an HTML page"):
        psfit.report(model, "page.txt")
    with pytest.raises(ValueError, match="y was passed without X"):
        psfit.report(model, y=IRIS.target)
    with pytest.raises(ValueError, match="no target"):
        psfit.report(model, X=IRIS.data)
    with pytest.raises(ValueError, match="now missing"):
        psfit.report(model, X=IRIS.data.iloc[:, :2], y=IRIS.target)
    with pytest.raises(ValueError, match="zero"):
        psfit.report(model, X=IRIS.data, y=IRIS.target, sample_weight=np.zeros(150))


@needs_chromium
class TestInABrowser:
    @pytest.fixture(scope="class")
    @classmethod
    def page(cls, tmp_path_factory):
        """A page with every kind of content, and names that would run if they were not escaped."""
        file = tmp_path_factory.mktemp("page") / "page.html"
        rng = np.random.default_rng(2)
        X = pd.DataFrame(rng.normal(size=(90, 6)), columns=NASTY)
        y = np.array(["<i>no</i>", "yes"])[(X.sum(axis=1) + rng.normal(size=90) > 0).astype(int)]
        psfit.report(psfit.SparseLogisticRegressionCV(range(1, 7), cv=3).fit(X, y), file, X, y)
        return file

    def test_the_console_stays_silent(self, page, tmp_path):
        done = run(page, tmp_path, "--dump-dom")
        assert not console(done)
        assert "alert(1)" in Page(done.stdout).said

    def test_a_broken_page_would_be_noticed(self, page, tmp_path):
        broken = tmp_path / "broken.html"
        broken.write_text(page.read_text().replace("</body>", "<script>nobody()</script></body>"))
        assert console(run(broken, tmp_path, "--dump-dom"))

    def test_clicks_sort_the_table(self, page, tmp_path):
        before = Page(page.read_text()).table("coefficient-table")
        click = "document.querySelectorAll('#coefficient-table thead button')[{}].click();"
        for clicks, rising in ((1, False), (2, True)):
            table = Page(after(page, tmp_path, click.format(1) * clicks)).table("coefficient-table")
            values = before["coefficient"].map(number).sort_values(ascending=rising)
            assert table["coefficient"].map(number).tolist() == values.tolist()
        html = after(page, tmp_path, click.format(0))
        assert sorted(Page(html).table("coefficient-table")["feature"]) == sorted(before["feature"])
        assert 'aria-sort="ascending"' in html

    def test_nothing_is_wider_than_the_window(self, page, tmp_path):
        tell = "document.title = document.documentElement.scrollWidth + ' in ' + window.innerWidth;"
        for width in (500, 1200):
            copy = tmp_path / "copy.html"
            copy.write_text(page.read_text().replace("</body>", f"<script>{tell}</script></body>"))
            html = run(copy, tmp_path, "--dump-dom", f"--window-size={width},900").stdout
            needed, given = map(int, re.search(r"<title>(\d+) in (\d+)", html).groups())
            assert needed <= given

    @pytest.mark.parametrize("dark", [False, True])
    def test_a_picture_of_it_shows_something(self, page, dark, tmp_path):
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        size = ["--window-size=900,3000", f"--screenshot={tmp_path / 'page.png'}"]
        run(page, tmp_path, *size, *scheme)
        with Image.open(tmp_path / "page.png") as image:
            pixels = np.asarray(image.convert("L"))
        ground = np.median(pixels)
        assert (ground < 60) == dark
        # Text and charts: neither a blank page nor a solid one, all the way down.
        for part in np.array_split(pixels, 4):
            assert 0.005 < np.mean(np.abs(part.astype(float) - ground) > 60) < 0.5


def test_constraints_are_shown_in_words_and_in_the_recipe():
    given = {"include": ["sepal width (cm)"], "lower": {"petal length (cm)": -np.inf, "petal width (cm)": -0.5}}
    model = psfit.SparseLinearRegression(2, certify=False, **given).fit(IRIS.data, IRIS.target)
    path = psfit.sparse_path(IRIS.data, IRIS.target, [1, 2], certify=False, **given)
    for subject in (model, path):
        text = " ".join(Page(psfit.report(subject)).text)
        assert "always in (not counted by kappa): sepal width (cm)" in text
        assert "coefficients at least -0.5: petal width (cm)" in text
        assert "nonzero coefficients besides those always in" in text
        assert "include=['sepal width (cm)']" in text
        assert "'petal length (cm)': float('-inf')" in text


@pytest.mark.parametrize(("loss", "power"), [("poisson", 1), ("gamma", 2), ("tweedie", 1.5)])
def test_models_with_a_log_link_are_scored_by_the_deviance_they_explain(loss, power):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 4))
    mean = np.exp(0.5 * X[:, 0] + 0.3)
    y = rng.poisson(mean) if loss == "poisson" else rng.gamma(2.0, mean / 2)
    weights = rng.uniform(size=200)
    kind = {"poisson": psfit.SparsePoissonRegression, "gamma": psfit.SparseGammaRegression}
    model = kind.get(loss, psfit.SparseTweedieRegression)(1).fit(X, y)
    said = Page(psfit.report(model, None, X, y, sample_weight=weights)).said
    expected = d2_tweedie_score(y, model.predict(X), power=power, sample_weight=weights)
    assert float(re.search(r"D² ([\d.]+) root mean squared error", said)[1]) == pytest.approx(expected, abs=1e-4)
    assert "R²" not in said


def test_the_recipe_of_a_table_makes_the_same_model():
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
    table["city"] = rng.choice(["Rome", "Nice", "Bonn"], 120)
    table["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 700, 120), "D")
    table["y"] = table["a"] + 2.0 * (table["city"] == "Rome") + 0.1 * rng.normal(size=120)
    table["note"], table["key"] = "text", np.arange(120)
    table.loc[::7, "b"] = np.nan
    # Four names are no range of numbers.
    unused = {f"unused{k}": rng.normal(size=120) for k in range(4)}
    table = table.assign(**unused)
    given = {"categories": "group", "dates": ["year", "month"], "missing": "indicator", "exclude": ["no*", *unused]}
    source = psfit.TableSource(table, target="y", ids=["key"], **given)
    model = psfit.SparseLinearRegression(2).fit(source)
    path = psfit.sparse_path(source, kappas=[1, 2])
    for subject in (model, path):
        page = Page(psfit.report(subject))
        assert "with the same samples as table , a DataFrame" in page.said
        recipe = re.search(
            r"from psfit import .*?\n\n.*?(model.fit\(source\)|gammas=[^\n]*\))", "".join(page.text), re.DOTALL
        )
        names = {"table": table}
        exec(recipe.group(), names)
        if subject is model:
            assert list(names["model"].feature_names_in_) == list(model.feature_names_in_)
            np.testing.assert_allclose(names["model"].coef_, model.coef_, rtol=1e-9)
        else:
            np.testing.assert_allclose(names["path"].objectives, path.objectives, rtol=1e-9)


def test_many_names_of_features_are_shown_in_the_recipe():
    names = list(IRIS.data.columns)
    model = psfit.SparseLinearRegression(4, include=names, count_included=True, certify=False).fit(
        IRIS.data, IRIS.target
    )
    assert f"include={names}" in " ".join(Page(psfit.report(model)).text)


def test_near_optimal_models_have_a_section(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    X[:, 5] = X[:, 0] + 0.05 * rng.normal(size=80)
    y = X[:, 0] + X[:, 2] + 0.3 * rng.normal(size=80)
    model = psfit.SparseLinearRegression(kappa=2).fit(X, y)
    close = psfit.near_optimal(model, X, y, within=0.5)
    page = psfit.report(model, near_optimal=close)
    assert 'href="#near-optimal"' in page
    assert f"{len(close.supports)} supports within 50" in page
    assert "every other support is worse than that" in page
    # Columns 0 and 5 replace each other, column 2 is in every model.
    assert close.replacements()[0] == {"one": "feature 0", "other": "feature 5", "times": 1}
    assert "near-optimal-pairs" in page
    assert "In every one of them: feature 2." in page
    assert 'href="#near-optimal"' not in psfit.report(model)
    with pytest.raises(TypeError, match="near_optimal is a list"):
        psfit.report(model, near_optimal=[])
