#!/usr/bin/env python3
"""Kill runs of every kind at random moments, as root, and look for what is left of them.

    scripts/kills.py PLUMB [KILLS [SEED]]

After each kill: no process of the run, no temporary file, and a recording that opens; one that resumes counts what a run
that was left alone counts. After all of them, and `plumb doctor --clean`: the same namespaces, journals, devices, qdiscs,
rules, tracing instances, BPF objects, shared memory and states that are being written as before. Fails if not.
"""

import glob
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

MARK = "PLUMB_TEST_MARK"
OUT = "-q -o x.plumb"
# Two arms, so that there is something to resume.
TWO_ARMS = 'name = "x"\n[blocks]\ncount = 20\n[vary]\nsize_bytes = [10, 1000]\n'
RESUMED = "a resumed run"
KINDS = {
    RESUMED: f"run x.toml {OUT}",
    "a cold boot": f"path --link lo --cold {OUT}",
    "stages in namespaces": f"path --lab netns --clock stages --blocks 20 {OUT}",
    "stages of this machine": f"path --lab host --clock stages --duration 20s {OUT}",
    "frames dropped": f"bench drop --path xdp,tc,af-xdp,nft-raw --blocks 2 {OUT}",
    "frames forwarded": f"bench forward --path route,bridge --blocks 2 {OUT}",
    "two hosts": f"bench stream --blocks 3 {OUT}",
    "two namespaces": f"bench stream --lab netns --blocks 5 {OUT}",
    "a profile": f"profile --duration 20s {OUT}",
    "pairs of events": f"between sched:sched_wakeup sched:sched_switch --duration 20s {OUT}",
    "counts": f"stat context-switches page-faults sched:sched_switch --duration 20s {OUT}",
    "calls in a guest": f"trace ksys_write --time --lab vm {OUT} -- /bin/echo 1",
    "metrics": "serve stat context-switches",
    "a module": "module build veth -o veth.ko",
    "settings found by search": "tune --goal throughput --lab netns -q",
}
# The kernel ends what a killed process had some time later.
PATIENCE_S = 10


def listed(folder, keep=lambda name: True):
    return sorted(filter(keep, os.listdir(folder))) if os.path.isdir(folder) else []


def printed(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def machine(cache):
    """What runs may leave on a machine, by its name."""
    return {
        "namespaces": listed("/run/netns", lambda name: name.startswith("plumb-")),
        "journals": listed("/run/netplumb", lambda name: not name.endswith(".lock")),
        "devices": listed("/sys/class/net"),
        "qdiscs": printed("tc", "qdisc"),
        "rules": printed("nft", "list", "ruleset"),
        "tracing instances": listed("/sys/kernel/tracing/instances"),
        "BPF objects": listed("/sys/fs/bpf"),
        "shared memory": listed("/dev/shm"),
        "states": listed(f"{cache}/states", lambda name: name.startswith(".")),
    }


def processes(mark):
    """Names of processes with a variable in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                is_marked = mark in file.read().split(b"\0")
            if is_marked:
                with open(path.replace("environ", "comm"), encoding="utf-8") as file:
                    found.append(file.read().strip())
        except OSError:
            pass  # It has ended.
    return found


def killed(plumb, kind, words):
    """Kill a run; returns whether it was alive, whether it had a recording, and what was wrong."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary:
        environment = {**os.environ, MARK: folder, "TMPDIR": temporary}
        with open(f"{folder}/x.toml", "w", encoding="utf-8") as file:
            file.write(TWO_ARMS)

        def run(words):
            return subprocess.run([plumb, *words.split()], cwd=folder, capture_output=True, text=True, check=False)

        with open(f"{folder}/stderr", "w+", encoding="utf-8") as errors:
            run_of = subprocess.Popen(
                [plumb, *words.split()],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            time.sleep(random.uniform(0, random.choice([0.4, 2, 5])))
            ended = run_of.poll()
            run_of.send_signal(signal.SIGKILL)
            run_of.wait()
            if ended not in (None, 0):
                errors.seek(0)
                wrong.append(f"ended with {ended}: {errors.read()[-300:]}")
        until = time.monotonic() + PATIENCE_S
        while processes(f"{MARK}={folder}".encode()) and time.monotonic() < until:
            time.sleep(0.05)
        wrong += [f"runs on: {name}" for name in processes(f"{MARK}={folder}".encode())]
        wrong += [f"temporary: {name}" for name in os.listdir(temporary)]
        has_recording = os.path.exists(f"{folder}/x.plumb")
        if has_recording:
            report = run("report x.plumb")
            if report.returncode:
                wrong.append(f"does not open: {report.stderr}")
            elif kind == RESUMED:
                again = [run(f"run x.toml {OUT} --resume"), run("run x.toml -q -o whole.plumb")]
                whole, resumed = (run(f"report {name} --csv").stdout for name in ("whole.plumb", "x.plumb"))
                if any(one.returncode for one in again) or whole != resumed:
                    wrong.append(f"resumed otherwise: {again[0].stderr}")
    return ended is None, has_recording, wrong


def main():
    plumb = os.path.abspath(sys.argv[1])
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    cache = os.environ.get("PLUMB_CACHE", os.path.expanduser("~/.cache/netplumb"))
    before = machine(cache)
    alive = recordings = runs = 0
    faults = []
    while alive < kills:
        for kind, words in KINDS.items():
            was_alive, has_recording, wrong = killed(plumb, kind, words)
            runs, alive, recordings = runs + 1, alive + was_alive, recordings + has_recording
            faults += [f"{kind}: {one}" for one in wrong]
    subprocess.run([plumb, "doctor", "--clean"], capture_output=True, check=False)
    after = machine(cache)
    faults += [f"left: {what}: {before[what]} {after[what]}" for what in before if before[what] != after[what]]
    print(f"{runs} runs of {len(KINDS)} kinds, {alive} killed, {recordings} recordings opened; {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
