#!/usr/bin/env python3
"""Opens the page of `trireme watch` in headless Chromium while a short run trains: no console error, and figures equal to
metrics.jsonl; at 400 and 1600 pixels, light and dark. Draws the terminal view in tmux, and prints the page of `trireme report`.

    apt-get install --no-install-recommends chromium tmux fonts-dejavu-core
    scripts/check_watch.py build/trireme --output shots/
"""
import argparse
import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

CONFIG = """
model: {family: llama, layers: 2, width: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 257, context: 64}
data: {train: [corpus/train-*.h5], validation: [corpus/validation-*.h5]}
checkpoint: {every: 50, keep: 3}
train: {name: run, steps: 400, batch: 8, eval_every: 50, eval_sequences: 20, log_every: 100}
"""


class Browser:
    """Chromium by its debugging protocol over two pipes: JSON, each message ended by a zero byte."""

    def __init__(self, profile: str):
        to_read, to_write = os.pipe(), os.pipe()

        def connect() -> None:
            os.dup2(to_read[0], 3), os.dup2(to_write[1], 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read[0]), os.close(to_write[1])
        self.out, self.into, self.rest, self.number, self.problems = to_read[1], to_write[0], b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.page(domain + ".enable")

    def message(self) -> dict:
        while b"\0" not in self.rest:
            some = os.read(self.into, 1 << 20)
            if not some:
                raise SystemExit("check_watch: Chromium has ended")
            self.rest += some
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method: str, session: str | None = None, **values) -> dict:
        self.number += 1
        request = {"id": self.number, "method": method, "params": values} | ({"sessionId": session} if session else {})
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while (answer := self.message()).get("id") != self.number:
            self.note(answer)
        if "error" in answer:
            raise SystemExit(f"check_watch: {method}: {answer['error']}")
        return answer["result"]

    def note(self, event: dict) -> None:
        values, method = event.get("params", {}), event.get("method")
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(values["exceptionDetails"])[:400])
        if method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.problems.append(json.dumps(values["args"])[:400])
        if method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.problems.append(values["entry"]["text"])
        if method == "Network.requestWillBeSent" and not re.match(r"http://127\.0\.0\.1:|data:|file:", values["request"]["url"]):
            self.problems.append("asks for " + values["request"]["url"])

    def page(self, method: str, **values) -> dict:
        return self.call(method, self.session, **values)

    def value(self, script: str):
        result = self.page("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"check_watch: {script}: {json.dumps(result['exceptionDetails'])[:600]}")
        return result["result"].get("value")

    def look(self, width: int, dark: bool, height: int = 900) -> None:
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def shoot(self, path: pathlib.Path, whole: bool = True) -> None:
        shot = self.page("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def lines_of(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def readable(value: float) -> str:
    digits = 3 if abs(value) < 1e-2 else 4
    return f"{float(f'{value:.{digits}g}'):.12g}"


def expected(lines: list[dict]) -> dict[str, str]:
    steps, evals = [x for x in lines if "loss" in x], [x for x in lines if "val_loss" in x]
    last, best = steps[-1], min(x["val_loss"] for x in evals)
    return {"step": f"{last['step']:,}", "loss": f"{last['loss']:.4f}", "val_loss": f"{evals[-1]['val_loss']:.4f}",
            "best": f"{best:.4f}", "bits_per_byte": f"{evals[-1]['bits_per_byte']:.4f}",
            "tokens": f"{last['tokens'] / 1e3:.3g}k", "grad_norm": readable(last["grad_norm"]),
            "step_ms": f"{last['step_ms']:.3g} ms" if last["step_ms"] < 1000 else f"{last['step_ms'] / 1e3:.1f} s",
            "checkpoint": f"step {max(x['step'] for x in lines if x.get('tier') == 'disk'):,}"}


def figures(browser: Browser) -> dict[str, str]:
    shown = browser.value("Object.fromEntries([...document.querySelectorAll('[data-key]')].map(e => [e.dataset.key, e.textContent]))")
    below = browser.value("document.querySelector('[data-key=val_loss]').nextSibling.textContent")
    shown["best"] = re.sub(r"best ([0-9.]+) .*", r"\1", below)
    return shown


def check_page(browser: Browser, url: str, metrics: pathlib.Path, output: pathlib.Path) -> None:
    for width in (400, 1600):
        for dark in (False, True):
            browser.look(width, dark)
            browser.page("Page.navigate", url=url)
            deadline = time.time() + 30
            while browser.value("document.querySelectorAll('[data-key]').length") < 9 and time.time() < deadline:
                time.sleep(0.2)
            time.sleep(1.5)
            wanted, shown = expected(lines_of(metrics)), figures(browser)
            wrong = {key: (shown.get(key), value) for key, value in wanted.items() if shown.get(key) != value}
            if wrong:
                raise SystemExit(f"check_watch: the page shows, and metrics.jsonl has: {wrong}")
            parts = browser.value("document.querySelectorAll('.legend b').length")
            rows = browser.value("document.querySelectorAll('#checkpoints tbody tr').length")
            wide = browser.value("document.documentElement.scrollWidth")
            if parts < 4 or rows != len(list((metrics.parent / "checkpoints").glob("step-*"))) or wide > width:
                raise SystemExit(f"check_watch: {parts} parts, {rows} checkpoints, {wide} pixels wide of {width}")
            browser.shoot(output / f"watch-{width}-{'dark' if dark else 'light'}.png")
    if browser.problems:
        raise SystemExit("check_watch: the browser complains: " + "\n".join(browser.problems))
    print(f"check_watch: {len(wanted) + 1} elements equal metrics.jsonl at 400 and 1600 pixels, light and dark")


def check_live(browser: Browser, metrics: pathlib.Path) -> None:
    """The page follows the run without being loaded again, and moves little."""
    first = browser.value("+document.querySelector('[data-key=step]').textContent.replace(',', '')")
    time.sleep(4)
    second = browser.value("+document.querySelector('[data-key=step]').textContent.replace(',', '')")
    moved = browser.value("performance.getEntriesByType('resource').slice(-2).map(e => e.transferSize)")
    last = lines_of(metrics)[-1]["step"]
    if not (first < second or last == second):
        raise SystemExit(f"check_watch: the page stays at step {first}")
    print(f"check_watch: steps {first} to {second} without loading the page again; the last answers had {moved} bytes")


def check_keys(browser: Browser) -> None:
    browser.value("document.querySelector('.plot').focus()")
    for key in ("ArrowLeft", "ArrowLeft"):
        browser.page("Input.dispatchKeyEvent", type="keyDown", key=key)
    unit = browser.value("document.querySelector('.unit').textContent")
    if not unit.startswith("step "):
        raise SystemExit("check_watch: an arrow key moves no crosshair")
    named = browser.value("[...document.querySelectorAll('[role=img]')].every(e => e.getAttribute('aria-label'))")
    if not named:
        raise SystemExit("check_watch: a picture has no name for screen readers")


def check_terminal(trireme: str, run: str, output: pathlib.Path) -> None:
    name = f"check-watch-{os.getpid()}"
    subprocess.run(["tmux", "-L", name, "-u", "new-session", "-d", "-x", "100", "-y", "30", f"LC_ALL=C.UTF-8 {trireme} watch {run} --text"], check=True)
    time.sleep(3)
    shown = subprocess.run(["tmux", "-L", name, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["tmux", "-L", name, "kill-server"], check=True)
    (output / "watch-text.txt").write_text(shown)
    for word in ("step", "loss", "speed", "time", "saved", "\u2581"):
        if word not in shown:
            raise SystemExit(f"check_watch: the terminal has no {word}:\n{shown}")
    print(shown.rstrip())


def check_report(browser: Browser, trireme: str, run: str, output: pathlib.Path) -> None:
    subprocess.run([trireme, "report", run, "--output", str(output / "report.html")], check=True)
    browser.look(1100, False)
    browser.page("Page.navigate", url=(output / "report.html").resolve().as_uri())
    time.sleep(1)
    browser.shoot(output / "report.png")
    printed = base64.b64decode(browser.page("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
    (output / "report.pdf").write_bytes(printed)
    print(f"check_watch: the report has {(output / 'report.html').stat().st_size:,} bytes and {printed.count(b'/Type /Page') - printed.count(b'/Type /Pages')} printed pages")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("trireme", type=pathlib.Path)
    words.add_argument("--output", type=pathlib.Path, default=pathlib.Path("check_watch"), help="directory for the pictures")
    words.add_argument("--run", nargs="+", help="show these runs, without checks, instead of training one")
    given = words.parse_args()
    trireme, output = str(given.trireme.resolve()), given.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        runs, started = given.run, []
        if not runs:
            os.chdir(place)
            os.mkdir("text")
            for i in range(1, 21):
                pathlib.Path(f"text/{i}.txt").write_text("".join(f"{n}\n" for n in range(i, i + 900)))
            subprocess.run([trireme, "data", "build", "text", "--output", "corpus", "--tokenizer", "bytes", "--validation", "0.1"],
                           check=True, stdout=subprocess.DEVNULL)
            pathlib.Path("config.yaml").write_text(CONFIG)
            started.append(subprocess.Popen([trireme, "train", "config.yaml"], stdout=subprocess.DEVNULL))
            runs = ["runs/run"]
            metrics = pathlib.Path("runs/run/metrics.jsonl")
            while not metrics.exists() or len(lines_of(metrics)) < 130:
                if started[0].poll() is not None:
                    raise SystemExit("check_watch: the run has ended early")
                time.sleep(0.5)
            os.kill(started[0].pid, signal.SIGSTOP)  # so that the page and the file can be compared
        watch = subprocess.Popen([trireme, "watch", *runs], stdout=subprocess.PIPE, text=True)
        started.append(watch)
        url = re.search(r"http://\S+", watch.stdout.readline()).group()
        browser = Browser(place + "/profile")
        try:
            if given.run:
                show(browser, url, output)
                return
            check_page(browser, url, metrics, output)
            os.kill(started[0].pid, signal.SIGCONT)
            check_live(browser, metrics)
            check_keys(browser)
            check_terminal(trireme, runs[0], output)
            started[0].wait()
            check_report(browser, trireme, runs[0], output)
            if browser.problems:
                raise SystemExit("check_watch: the browser complains: " + "\n".join(browser.problems))
        finally:
            browser.close()
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def show(browser: Browser, url: str, output: pathlib.Path) -> None:
    for width in (400, 1600):
        for dark in (False, True):
            browser.look(width, dark)
            began = time.time()
            browser.page("Page.navigate", url=url)
            while not browser.value("document.querySelectorAll('[data-key]').length"):
                time.sleep(0.05)
            opened = time.time() - began
            while browser.value("runs.some(r => !r.data || r.data.more)"):
                time.sleep(0.1)
            time.sleep(1)
            moved = browser.value("performance.getEntriesByType('resource').reduce((sum, e) => sum + e.transferSize, 0)")
            print(f"{width} pixels: figures after {opened:.2f} s, all after {time.time() - began - 1:.1f} s, {moved:,} bytes moved")
            browser.shoot(output / f"runs-{width}-{'dark' if dark else 'light'}.png")
    if browser.problems:
        raise SystemExit("check_watch: the browser complains: " + "\n".join(browser.problems))


if __name__ == "__main__":
    main()
