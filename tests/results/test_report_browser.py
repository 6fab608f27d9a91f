#!/usr/bin/env python3
"""test_report_browser.py BUILD - the page of `speclab report --html` in Chromium without a screen, at 400 and 1200 pixels, light and dark: it fits, its
tables sort by keys, it writes nothing to the console and requests nothing. Exit status 77: no chromium, gnuplot or sqlite3."""
import http.server
import os
import re
import shutil
import sys
import tempfile
import threading

from report_pages import command, must, small_run

PROBE = """<script>
const seen = { errors: 0 };
addEventListener("error", () => seen.errors++);
addEventListener("securitypolicyviolation", () => seen.errors++);
addEventListener("load", () => {
  const table = document.querySelector("#cells ~ .scroll table"), heads = [...table.tHead.rows[0].cells];
  const column = heads.findIndex(head => head.textContent === "speedup"), values = () => [...table.tBodies[0].rows].map(row => row.cells[column].dataset.v);
  const button = heads[column].querySelector("button"), sorted = [];
  for (let press = 0; press < 2; press++) {
    button.focus();
    document.activeElement.click(); // what Enter does on a button
    sorted.push(heads[column].getAttribute("aria-sort"), values());
  }
  const names = heads.findIndex(head => head.textContent === "drafter");
  heads[names].querySelector("button").click();
  const box = element => element.getBoundingClientRect();
  const panels = [...document.querySelectorAll(".panels svg")], inner = [];
  for (const svg of panels)
    for (const text of svg.querySelectorAll("text"))
      if (box(text).left < box(svg).left - 2 || box(text).right > box(svg).right + 2) inner.push(text.textContent);
  seen.sorted = sorted;
  seen.heads = heads.map(head => head.getAttribute("aria-sort"));
  seen.wide = document.documentElement.scrollWidth - innerWidth;
  seen.width = innerWidth;
  seen.smallest = Math.min(...panels.map(svg => box(svg).width / svg.viewBox.baseVal.width * 14));
  seen.outside = inner;
  seen.over = [];
  for (const svg of panels) { // labels that stand on each other; numbers of batches at points are smaller, and may
    const labels = [...svg.querySelectorAll("g[font-size='14.00'] > text")].map(text => [box(text), text.textContent]);
    labels.forEach(([a, name], i) => labels.slice(i + 1).forEach(([b, other]) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        seen.over.push(name + " | " + other);
    }));
    seen.labels = (seen.labels || 0) + labels.length;
  }
  seen.columns = new Set(panels.map(svg => Math.round(box(svg).left))).size;
  seen.paper = getComputedStyle(document.body).backgroundColor;
  seen.picture = getComputedStyle(panels[0]).backgroundColor;
  seen.ink = getComputedStyle(document.querySelector("svg text").parentElement).fill;
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
    queried = []

    def do_GET(self):
        Server.queried.append(self.path)
        super().do_GET()

    def log_message(self, *words):
        pass


def luminance(colour):
    numbers = [int(float(n)) for n in re.findall(r"[\d.]+", colour)[:3]]
    return sum(w * n for w, n in zip((0.2126, 0.7152, 0.0722), numbers)) / 255


def look(url, folder, dark):
    import html
    import json
    options = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
               f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--window-size=1400,1000", "--virtual-time-budget=20000", "--dump-dom", url]
    done = command(*options, timeout=300)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == [], console
    found = re.search(r"seen:(.*?):end", done.stdout, re.S)
    assert found, (done.stdout[-300:], done.stderr[-1000:])
    return json.loads(html.unescape(found.group(1)))


def check(seen, width, dark):
    assert seen["width"] == width and seen["errors"] == 0 and seen["requests"] == [], seen
    assert seen["wide"] <= 0 and seen["outside"] == [], (seen["wide"], seen["outside"])
    assert seen["over"] == [] and seen["labels"] > 100, (seen["over"], seen["labels"])
    assert seen["columns"] == (1 if width < 600 else 2) and seen["smallest"] > 9, seen
    assert seen["paper"] == seen["picture"] and (luminance(seen["paper"]) < 0.2) == dark and (luminance(seen["ink"]) > 0.6) == dark, seen
    down, first, up, second = seen["sorted"]
    assert (down, up) == ("descending", "ascending")
    for values, reverse in ((first, True), (second, False)):
        numbers = [float(v) for v in values if v != ""]
        assert numbers == sorted(numbers, reverse=reverse) and all(v == "" for v in values[len(numbers):]) and len(numbers) > 10
    assert seen["heads"].count("ascending") == 1 and seen["heads"].count(None) == len(seen["heads"]) - 1


def main():
    if not all(map(shutil.which, ("chromium", "gnuplot", "sqlite3"))):
        print("no chromium, gnuplot or sqlite3")
        sys.exit(77)
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        db = small_run(build, folder)
        must(f"{build}/speclab", "report", "--db", db, "--html", f"{folder}/page.html")
        with open(f"{folder}/page.html", encoding="utf-8") as f:
            page = f.read()
        with open(f"{folder}/probed.html", "w", encoding="utf-8") as f:
            f.write(page.replace("</body>", PROBE + "</body>"))
        for width in (400, 1200):
            with open(f"{folder}/{width}.html", "w") as f:
                f.write(FRAME % width)
        os.chdir(folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for width in (400, 1200):
            for dark in (False, True):
                check(look(f"http://127.0.0.1:{server.server_port}/{width}.html", folder, dark), width, dark)
                print(f"ok at {width} pixels, {'dark' if dark else 'light'}", flush=True)
        assert set(Server.queried) == {"/probed.html", "/400.html", "/1200.html"}, Server.queried
        server.shutdown()


main()
