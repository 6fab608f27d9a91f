"""The page of a report in Chromium without a screen, at 400 and 1200 pixels, light and dark: it fits, no label stands on another or leaves its
picture, its tables sort by keys, it writes nothing to the console and requests nothing. Skipped where there is no chromium."""

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest
from conftest import call
from pages import small_run

PROBE = """<script>
const seen = { errors: 0 };
addEventListener("error", () => seen.errors++);
addEventListener("securitypolicyviolation", () => seen.errors++);
addEventListener("load", () => {
  const table = document.querySelector("#cells ~ .scroll table"), heads = [...table.tHead.rows[0].cells];
  const column = heads.findIndex(head => head.textContent === "speedup");
  const values = () => [...table.tBodies[0].rows].map(row => row.cells[column].dataset.v);
  const button = heads[column].querySelector("button");
  seen.sorted = [0, 1].map(() => {
    button.focus();
    document.activeElement.click(); // what Enter does on a button
    return [heads[column].getAttribute("aria-sort"), values()];
  });
  heads[heads.findIndex(head => head.textContent === "drafter")].querySelector("button").click();
  seen.heads = heads.map(head => head.getAttribute("aria-sort"));
  const box = element => element.getBoundingClientRect(), panels = [...document.querySelectorAll(".panels svg")];
  const scale = svg => box(svg).width / svg.viewBox.baseVal.width;
  Object.assign(seen, { outside: [], over: [], labels: 0 });
  for (const svg of panels) {
    const texts = [...svg.querySelectorAll("text")].map(text => [box(text), text.textContent, parseFloat(getComputedStyle(text).fontSize)]);
    for (const [a, name] of texts)
      if (a.left < box(svg).left - 2 || a.right > box(svg).right + 2 || a.bottom > box(svg).bottom + 2) seen.outside.push(name);
    const labels = texts.filter(text => text[2] > 11); // numbers of batches at points are smaller, and may stand on others
    labels.forEach(([a, name], i) => labels.slice(i + 1).forEach(([b, other]) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        seen.over.push(name + " | " + other);
    }));
    seen.labels += labels.length;
  }
  seen.wide = document.documentElement.scrollWidth - innerWidth;
  seen.width = innerWidth;
  seen.smallest = Math.min(...panels.map(svg => scale(svg) * 13));
  seen.columns = new Set(panels.map(svg => Math.round(box(svg).left))).size;
  seen.paper = getComputedStyle(document.body).backgroundColor;
  seen.picture = getComputedStyle(panels[0]).backgroundColor;
  seen.ink = getComputedStyle(document.querySelector("svg text")).fill;
  seen.lines = [...new Set([...document.querySelectorAll("svg path")].map(path => getComputedStyle(path).stroke))];
  seen.requests = performance.getEntriesByType("resource").map(entry => entry.name);
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>"""

# Without a screen Chromium opens no window of 400 pixels, so the page stands in a frame.
FRAME = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><style>body { margin: 0 }</style>
<script>addEventListener("message", message => document.body.textContent = `seen${":"}${message.data}:end`)</script>
<iframe src="probed.html" width="%d" height="900" style="border: 0"></iframe>"""


class Server(http.server.SimpleHTTPRequestHandler):
    """Notes what is requested."""

    requested: list = []

    def do_GET(self):
        Server.requested.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module", params=["plain", "long"])
def site(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    db = small_run(folder)
    if request.param == "long":  # names that have no room
        from pages import many

        db = many(db, folder / "long.db", 60, "--hostile")
    assert call("report", "--db", db, "--html", folder / "page.html").status == 0
    (folder / "probed.html").write_text((folder / "page.html").read_text().replace("</body>", PROBE + "</body>"))
    for width in (400, 1200):
        (folder / f"{width}.html").write_text(FRAME % width)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def luminance(colour):
    return sum(w * float(n) for w, n in zip((0.2126, 0.7152, 0.0722), re.findall(r"[\d.]+", colour), strict=False)) / 255


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_page_fits_and_requests_nothing(site, width, dark):
    folder, url = site
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
                           f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--window-size=1400,1000", "--virtual-time-budget=20000",
                           "--dump-dom", f"{url}/{width}.html"], capture_output=True, text=True, timeout=300)  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    found = re.search(r"seen:(.*?):end", done.stdout, re.S)
    assert found, done.stderr[-1000:]
    seen = json.loads(html.unescape(found[1]))
    assert (seen["width"], seen["errors"], seen["requests"], seen["outside"], seen["over"]) == (width, 0, [], [], [])
    assert seen["wide"] <= 0 and seen["labels"] > 100 and seen["columns"] == (1 if width < 600 else 2) and seen["smallest"] > 9
    assert seen["paper"] == seen["picture"] and (luminance(seen["paper"]) < 0.2) == dark and (luminance(seen["ink"]) > 0.6) == dark
    assert ("rgb(78, 168, 224)" if dark else "rgb(0, 114, 178)") in seen["lines"]
    for direction, values in seen["sorted"]:
        numbers = [float(v) for v in values if v != ""]
        assert numbers == sorted(numbers, reverse=direction == "descending") and all(v == "" for v in values[len(numbers) :]) and len(numbers) > 10
    assert [s[0] for s in seen["sorted"]] == ["descending", "ascending"] and seen["heads"].count("ascending") == 1
    assert set(Server.requested) <= {"/probed.html", "/400.html", "/1200.html"}
