#!/usr/bin/env python3
"""Runs rdma-core's own test suite in a guest of the lab, for `cargo xtask conformance`.

    conformance.py drive OUT PATIENCE [--only NAME...] [-- PREFIX...]
    conformance.py record FILE ARGUMENT...

`record` runs the suite's run_tests.py, unmodified, and appends a line of JSON to FILE when a test
starts and when it ends. `drive` runs `record` (behind PREFIX, for instance `verbgate run --`) and
goes on with the test after one that hangs or ends its process. At the end the folder OUT has
records.jsonl, log, and counts.json (what the kernel says exists, before and after).
"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SUITE = "/opt/pyverbs/tests"
DEVICE = os.environ.get("DEVICE", "rxe0")
# How long the kernel may take to destroy what a test left behind.
SETTLE = 10
# How long a hanging process may take to say where it hangs, and then to end.
LAST_WORDS = 5


def append(path, **record):
    with open(path, "a") as file:
        file.write(json.dumps({**record, "at": round(time.monotonic(), 2)}) + "\n")


def record(path, arguments):
    """The suite in this process."""
    import faulthandler
    import runpy
    import unittest

    # A signal rather than a watching thread: some tests fork.
    faulthandler.register(signal.SIGUSR1, all_threads=True)

    class Recorder(unittest.TextTestResult):
        def startTest(self, test):
            append(path, event="start", test=test.id())
            self.outcome = None
            super().startTest(test)

        def set(self, outcome, why=""):
            # The first failure counts, whatever its cleaning up says.
            if self.outcome is None or self.outcome[0] == "ok":
                self.outcome = (outcome, why)

        def addSuccess(self, test):
            self.set("ok")
            super().addSuccess(test)

        def addSkip(self, test, reason):
            self.set("skipped", reason)
            super().addSkip(test, reason)

        def addFailure(self, test, err):
            self.set("failed", last_line(err))
            super().addFailure(test, err)

        def addError(self, test, err):
            self.set("error", last_line(err))
            super().addError(test, err)

        def addSubTest(self, test, subtest, err):
            if err is not None:
                self.set("failed", f"{subtest}: {last_line(err)}")
            super().addSubTest(test, subtest, err)

        def stopTest(self, test):
            outcome, why = self.outcome or ("ok", "")
            append(path, event="end", test=test.id(), outcome=outcome, why=why)
            super().stopTest(test)

        # Of a whole class, whose tests then never start: told apart by having no outcome to set.
        outcome = ("none", "")

    def last_line(err):
        kind, value, _ = err
        return f"{kind.__name__}: {value}".strip()

    unittest.TextTestRunner.resultclass = Recorder
    sys.argv = [os.path.join(SUITE, "run_tests.py"), *arguments]
    sys.path.insert(0, SUITE)
    runpy.run_path(sys.argv[0], run_name="__main__")


def names():
    """All tests, in the order in which they run."""
    listed = subprocess.run(
        [sys.executable, "run_tests.py", "--dev", DEVICE, "--list-tests"],
        cwd=SUITE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    found = [line for line in listed.stdout.splitlines() if line.startswith("tests.")]
    if not found:
        sys.exit(f"{SUITE}/run_tests.py lists no tests: is python3-pyverbs installed?")
    return found


def counts():
    """What exists on the device, by kind."""
    text = subprocess.run(
        ["rdma", "resource", "show", DEVICE], stdout=subprocess.PIPE, text=True
    ).stdout
    words = text.split()[2:]
    return {kind: int(number) for kind, number in zip(words[::2], words[1::2])}


def settled(before):
    """The counts, once they are as before or will not be any more."""
    deadline = time.monotonic() + SETTLE
    while (now := counts()) != before and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def family(root):
    """The process and all its descendants."""
    children = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = open(path).read()
        except OSError:
            continue
        pid = int(text.split()[0])
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def read(path):
    try:
        return open(path).read().replace("\0", " ").strip()
    except OSError as error:
        return f"({error.strerror})"


def where(root, log):
    """Writes down where each thread of a hanging family is."""
    for pid in family(root):
        print(f"--- {pid}: {read(f'/proc/{pid}/cmdline')[:200]}", file=log)
        for task in sorted(glob.glob(f"/proc/{pid}/task/*")):
            state = [read(f"{task}/{name}") for name in ("comm", "wchan", "syscall")]
            print("    ", os.path.basename(task), *state, file=log)
            print("     ", read(f"{task}/stack").replace("\n", " < "), file=log)
    log.flush()


def end(process, log):
    """Ends a hanging process, after its last words."""
    where(process.pid, log)
    for pid in family(process.pid):
        # Of all that run here, only the suite's own processes have a handler for it.
        if "record" in read(f"/proc/{pid}/cmdline").split()[2:3]:
            os.kill(pid, signal.SIGUSR1)
    time.sleep(LAST_WORDS)
    members = family(process.pid)
    process.terminate()
    try:
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        pass
    for pid in members:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def run(out, patience, prefix, todo, everything):
    """One process of the suite; gives the test that was its end, and those it did not get to."""
    records = os.path.join(out, "records.jsonl")
    seen = os.path.getsize(records)
    with open(os.path.join(out, "log"), "a") as log:
        process = subprocess.Popen(
            [*prefix, sys.executable, os.path.abspath(__file__), "record", records]
            + ["--dev", DEVICE, "-v"]
            + ([] if todo == everything else todo),
            cwd=SUITE,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        size, since, hung = seen, time.monotonic(), False
        while process.poll() is None and not hung:
            time.sleep(0.2)
            if os.path.getsize(records) != size:
                size, since = os.path.getsize(records), time.monotonic()
            hung = time.monotonic() - since > patience
        if hung:
            end(process, log)
    with open(records) as file:
        file.seek(seen)
        last = None
        for last in map(json.loads, file):
            pass
    if last is None or (last["event"] == "end" and (hung or process.returncode not in (0, 1))):
        sys.exit(
            f"the suite {'hung' if hung else f'ended with status {process.returncode}'}"
            f" outside of its tests: see its log"
        )
    if last["event"] == "end":
        return [], []
    outcome = "hung" if hung else "crashed"
    why = f"no end in {patience} s" if hung else f"its process ended with {process.returncode}"
    append(records, event="end", test=last["test"], outcome=outcome, why=why)
    print(f"  {last['test']}: {outcome}, {why}", flush=True)
    return [last["test"]], todo[todo.index(last["test"]) + 1 :]


def drive(final, patience, only, prefix):
    # Not there at once: a file that several processes append to can hang 9p.
    out = tempfile.mkdtemp(prefix="conformance-")
    try:
        drive_in(out, patience, only, prefix)
    finally:
        shutil.copytree(out, final, dirs_exist_ok=True)


def drive_in(out, patience, only, prefix):
    open(os.path.join(out, "records.jsonl"), "w").close()
    open(os.path.join(out, "log"), "w").close()
    everything = names()
    todo = [name for name in everything if not only or any(part in name for part in only)]
    if not todo:
        sys.exit(f"no test's name contains {' or '.join(only)}")
    before = counts()
    again = []
    while todo:
        culprit, todo = run(out, patience, prefix, todo, everything)
        again += culprit
    # The suite frees objects of devices that it has closed, when Python's collector happens to
    # come by: it crashes now and then, natively too, and in tests that have no part in it.
    for name in again:
        run(out, patience, prefix, [name], everything)
    with open(os.path.join(out, "counts.json"), "w") as file:
        json.dump({"before": before, "after": settled(before)}, file)


def main(mode, first, *rest):
    if mode == "record":
        return record(first, rest)
    patience, *rest = rest
    at = rest.index("--") if "--" in rest else len(rest)
    return drive(first, int(patience), rest[:at][1:], rest[at + 1 :])


if __name__ == "__main__":
    main(*sys.argv[1:])
