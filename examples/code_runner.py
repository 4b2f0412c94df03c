"""Runs the code of a pipeline's `external` stage in a sandbox, beside Slackwater. An example: it answers items like

    {"id": "run", "external": {"timeout": "1h"}, "body": {"code": "{{json.code}}", "session": "{{item.custom_id}}"}}

with `{"exit_code", "output"}`. Each run has no network, a read-only root, none of this machine's files but /usr, little memory
and time, and the folder of its session, which is kept until the session was idle for 20 minutes. Slackwater is told nothing of
that: runs that lie further apart begin with an empty folder.

Run it as a user of its own, on a host without keys and prompts: a sandbox in the same kernel is no wall against an attacker. It
needs bubblewrap, prlimit and the Python package standardwebhooks; containers often forbid the namespaces.

    slackwater subscription create http://127.0.0.1:8730/ --event item.waiting --format standard   # prints the secret
    python examples/code_runner.py --key sk_sw_… --secret whsec_…
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

IDLE_SECONDS = 20 * 60
RUN_SECONDS = 30
OUTPUT_CHARACTERS = 16_000
LIMITS = ("--as=536870912", "--cpu=20", "--fsize=16777216", "--nofile=64", "--nproc=64", "--core=0")
READ_ONLY = ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives")
RETRY_SECONDS = (1, 5, 25, 125)


class Sandbox:
    """Runs code. Each session has a folder, and one run at a time."""

    def __init__(self, folder, bwrap="bwrap", idle_seconds=IDLE_SECONDS, run_seconds=RUN_SECONDS):
        self._folder, self._bwrap = Path(folder), bwrap
        self._idle_seconds, self._run_seconds = idle_seconds, run_seconds
        self._guard, self._locks = threading.Lock(), {}

    def run(self, code, session):
        """Exit code and output of the code, run in the folder of its session. 124: it took too long."""
        self.sweep()
        place = self._folder / hashlib.sha256(session.encode()).hexdigest()
        with self._lock(place):
            place.mkdir(mode=0o700, exist_ok=True)
            try:
                return self._bounded([*self._command(place), "-c", code])
            finally:
                place.touch()

    def _lock(self, place):
        with self._guard:
            return self._locks.setdefault(place.name, threading.Lock())

    def _command(self, place):
        python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
        seen = [each for each in (*READ_ONLY, sys.base_prefix) if Path(each).exists()]
        return [
            *("prlimit", *LIMITS, self._bwrap, "--unshare-all", "--die-with-parent", "--new-session"),
            *(word for each in seen for word in ("--ro-bind", each, each)),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", str(place), "/work", "--chdir", "/work"),
            *("--uid", "65534", "--gid", "65534", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"),
            *("--remount-ro", "/", "--", python, "-I"),
        ]

    def _bounded(self, command):
        """The output goes to a file that prlimit keeps small, so code that prints without end cannot fill our memory."""
        with tempfile.TemporaryFile() as output:
            try:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=self._run_seconds,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = 124
            output.seek(0)
            text = output.read(4 * OUTPUT_CHARACTERS + 1).decode(errors="replace")
        if len(text) > OUTPUT_CHARACTERS:
            text = text[:OUTPUT_CHARACTERS] + f" […cut at {OUTPUT_CHARACTERS:,} characters]"
        return {"exit_code": code, "output": text}

    def sweep(self):
        """Remove the folders of sessions that were idle for too long."""
        for each in self._folder.iterdir():
            lock = self._lock(each)
            if not lock.acquire(blocking=False):
                continue  # it runs
            try:
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - each.stat().st_mtime > self._idle_seconds:
                        shutil.rmtree(each, ignore_errors=True)
            finally:
                lock.release()


class Slackwater:
    """Its routes of items that wait."""

    def __init__(self, url, key):
        self._url, self._headers = f"{url}/v1/pipelines", {"authorization": f"Bearer {key}"}

    def waiting(self, pipeline, **query):
        """The items of a pipeline that wait."""
        return self._listed(f"/{pipeline}/waiting", query)

    def one(self, pipeline, stage, item):
        """An item, if it waits."""
        after = f"{stage}/{item - 1}" if item else None
        query = {"stage": stage, "limit": 1} | ({"after": after} if after else {})
        return next((each for each in self.waiting(pipeline, **query) if each["item"] == item), None)

    def open_pipelines(self):
        """The ids of the pipelines that have not ended."""
        return [each["id"] for each in self._listed("", {"limit": 100}) if each["ended_at"] is None]

    def answer(self, pipeline, item, answer):
        """Answer an item. False: it has another answer, or waits no more."""
        try:
            self._call(f"/{pipeline}/items/{item['id']}/answer", {"answer": answer})
        except urllib.error.HTTPError as refusal:
            if refusal.code in (404, 409):
                return False
            raise
        return True

    def _listed(self, path, query):
        """What a route lists, page by page."""
        while True:
            page = self._call(f"{path}?{urllib.parse.urlencode(query)}")
            yield from page["data"]
            if not page["has_more"]:
                return
            query = {**query, "after": page["last_id"]}

    def _call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"content-type": "application/json"} if data else {})
        request = urllib.request.Request(self._url + path, data, headers)
        for pause in (*RETRY_SECONDS, None):
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return json.load(response)
            except urllib.error.URLError as error:
                if pause is None or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                    raise
                time.sleep(pause)
        return None


class Runner:
    """Answers items, each by one thread at a time."""

    def __init__(self, api, sandbox, stage, threads=4):
        self._api, self._sandbox, self._stage = api, sandbox, stage
        self._threads, self._guard, self._taken = ThreadPoolExecutor(threads), threading.Lock(), set()

    def catch_up(self):
        """Take what began to wait while nobody listened."""
        for pipeline in self._api.open_pipelines():
            for item in self._api.waiting(pipeline):
                self.take(pipeline, item["stage"], item["item"])

    def take(self, pipeline, stage, number):
        """Run an item later, unless it is taken at present. One that is asked again, by a retry, runs again."""
        with self._guard:
            if stage == self._stage and (pipeline, stage, number) not in self._taken:
                self._taken.add((pipeline, stage, number))
                self._threads.submit(self._attempt, pipeline, stage, number)

    def _attempt(self, pipeline, stage, number):
        try:
            self._run(pipeline, stage, number)
        except Exception as error:  # its timeout will say so to the pipeline
            print(f"{pipeline} {stage}/{number}: {error!r}", file=sys.stderr)
        finally:
            with self._guard:
                self._taken.discard((pipeline, stage, number))

    def _run(self, pipeline, stage, number):
        item = self._api.one(pipeline, stage, number)
        if item is None:
            return
        session = f"{pipeline}/{item['body'].get('session') or item['custom_id']}"
        answer = self._sandbox.run(str(item["body"]["code"]), session)
        kept = self._api.answer(pipeline, item, answer)
        print(f"{pipeline} {stage}/{number}: exit code {answer['exit_code']}{'' if kept else ', too late'}", flush=True)


def listening(port, secret, runner):
    """A server of signed events. They are run after the response, which Slackwater waits for."""
    webhook = Webhook(secret)

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(self._outcome(body))
            self.end_headers()

        def _outcome(self, body):
            try:
                event = webhook.verify(body, dict(self.headers))
            except WebhookVerificationError:
                return 401
            if event["type"] == "item.waiting":
                runner.take(event["data"]["pipeline"], event["data"]["stage"], event["data"]["item"])
            return 204

        def log_message(self, *_):
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Receiver)


def main():
    """Listen, then take what was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8700")
    parser.add_argument("--key", required=True)
    parser.add_argument("--secret", required=True, help="of the subscription")
    parser.add_argument("--port", type=int, default=8730)
    parser.add_argument("--stage", default="run", help="the stage whose items are code")
    parser.add_argument("--bwrap", default="bwrap")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="code-runner-") as folder:
        runner = Runner(Slackwater(options.url, options.key), Sandbox(folder, options.bwrap), options.stage)
        with listening(options.port, options.secret, runner) as server:
            threading.Thread(target=runner.catch_up, daemon=True).start()
            server.serve_forever()


if __name__ == "__main__":
    main()
