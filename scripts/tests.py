#!/usr/bin/env python3
"""Run the tests that cargo has built, several groups at a time where they can be.

    cargo test --release --workspace --no-run --message-format=json >BUILT
    scripts/tests.py BUILT [--times FILE] [--ran FILE] [--soak] [NAME...]

A group is a program of tests, or a module of one of the few programs of package
`netplumb`, each of which is linked once for many modules. Each group has a process of
its own. With names, only the groups called so: the package, or the package and the
file, as in `netplumb-store` or `netplumb/bench`; or single tests of them, as in
`netplumb/bench::a_test`. What each wrote is printed when it is done; the seconds of
each test, slowest first, go to the FILE of --times, and what the groups that passed
ran on to that of --ran (see scripts/compatibility.py). The program of --beside runs at
a low priority beside the groups that may run beside anything; the others wait for it.

`cargo test` runs one program after the other, and most of ours wait for a guest or
a timeout, or have one long test at their end. Nextest would run each test in a
process of its own, while ours take turns by locks of their process and share guests
that were booted once; and it takes minutes to compile.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# The programs whose modules are groups (crates/cli/tests).
BY_MODULE = ["pure", "guests", "machine", "alone"]

# What looks at rates or times, or at the state of the whole machine (names of
# namespaces, settings, processes): nothing else runs meanwhile. It is these, and the
# modules of the program `alone`. What is not named here may run beside anything.
ALONE = [
    "netplumb-engine/live",
    "netplumb-engine/stages",
    "netplumb-instruments",
    "netplumb-knobs/settings",
    "netplumb-lab/netns",
    "netplumb-paths/paths",
    "netplumb-workload",
    "netplumb-workload/frames",
]

# The longest of the others, which begin first: a long one that begins last is
# what everybody waits for.
FIRST = [
    "netplumb/host_settings",
    "netplumb/states",
    # Pairs of hosts and many cold boots, in two or three QEMUs.
    "netplumb/qemus",
    "netplumb/trace_times",
    # Pairs of hosts want a CPU each, so not beside those of the first.
    "netplumb/tune",
    "netplumb/arm64",
    "netplumb/experiments",
    "netplumb/sampled",
    "netplumb/modules",
    "netplumb/documents",
    "netplumb/disks",
    "netplumb/driver",
    "netplumb/qdisc",
    "netplumb/paths",
    "netplumb/truth",
    "netplumb/web",
    "netplumb/kernels",
    "netplumb/hosts",
    "netplumb/rules",
    "netplumb/one_wire",
    "netplumb/explained",
]

# Those with tests that repeat what they do, as often as PLUMB_TRIES and PLUMB_KILLS
# say, or that `make test` leaves out: what `make soak` runs.
SOAK = [
    "netplumb/aa",
    "netplumb/aa_live",
    "netplumb/arm64",
    "netplumb/bench",
    "netplumb/experiments",
    "netplumb/host_settings",
    "netplumb/nics",
    "netplumb/small_kernel",
    "netplumb/states",
    "netplumb/targets",
    "netplumb-report",
    "netplumb-store/killed",
]

# Room for the states of guests that all tests save, some 200 of 90 MB, but no more than half of what is free. With
# less, states go that another group needs again, and it boots.
STATES_BYTES = min(24 << 30, shutil.disk_usage("/").free // 2)

print_lock = threading.Lock()


def text_of(file):
    """All that was written to a file."""
    file.seek(0)
    return file.read().decode(errors="replace")


class Group:
    """Tests that one process runs, and where cargo would run it."""

    def __init__(self, name, path, folder, prefix="", tests=(), alone=False):
        self.name = name
        self.path = path
        self.folder = folder
        # What its tests' names begin with in the program.
        self.prefix = prefix
        self.alone = alone or name in ALONE
        # Those to run; without any, all of the program.
        self.only = list(tests)
        self.passed = False
        self.times = []
        self.ran = set()

    def filter(self):
        """Arguments that select its tests."""
        return ["--exact", *(self.prefix + test for test in self.only)]

    def run(self, threads):
        """Run it to its end, and print what it wrote."""
        environment = dict(os.environ)
        environment["CARGO_MANIFEST_DIR"] = self.folder
        environment.setdefault("PLUMB_CACHE_SIZE", str(STATES_BYTES))
        environment["RUST_TEST_THREADS"] = str(threads)
        # The harness has the time of each test behind this switch alone.
        environment["RUSTC_BOOTSTRAP"] = "1"
        begun = time.monotonic()
        # Files, not pipes: a process that is left behind would keep these open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, \
                tempfile.NamedTemporaryFile() as ran:
            environment["PLUMB_TEST_RAN"] = ran.name
            child = subprocess.Popen(
                [self.path, "-Z", "unstable-options", "--report-time", *self.filter()],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            # With the CPU time of it and of all that it waited for: on a machine that
            # others use it says more than the other.
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            printed, errors = (text_of(file) for file in (out, err))
            if child.returncode == 0:
                self.ran.update(text_of(ran).splitlines())
        took = time.monotonic() - begun
        cpu_seconds = used.ru_utime + used.ru_stime
        for name, seconds in re.findall(r"^test (\S+).* <([0-9.]+)s>$", printed, re.MULTILINE):
            test = name.removeprefix(self.prefix)
            self.times.append((float(seconds), f"{self.name}::{test}"))
        ran = [
            name.removeprefix(self.prefix)
            for name in re.findall(r"^test (\S+)", printed, re.MULTILINE)
        ]
        missing = [name for name in self.only if name not in ran]
        self.passed = child.returncode == 0 and not missing
        with print_lock:
            print(f"\n     Running {self.name} ({took:.1f} s, {cpu_seconds:.1f} s of CPU)")
            sys.stdout.write(errors)
            sys.stdout.write(printed)
            if "\ntest result: " not in printed:
                print(f"{self.name} ended with {child.returncode} before its tests did")
                print("test result: FAILED. 0 passed; 1 failed; 0 ignored")
            for name in missing:
                print(f"test result: FAILED. 0 passed; 1 failed; 0 ignored: no test {name}")
            sys.stdout.flush()


class Beside:
    """A program at a low priority, which has ended when this has; none without one."""

    def __init__(self, program):
        self.program = program
        self.passed = True

    def __enter__(self):
        if self.program:
            self.out = tempfile.TemporaryFile()
            self.child = subprocess.Popen(
                ["nice", "-n", "19", self.program],
                stdin=subprocess.DEVNULL,
                stdout=self.out,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, raised, *_):
        if not self.program:
            return
        if raised:
            self.child.terminate()
        self.passed = self.child.wait() == 0
        with print_lock:
            print(f"\n     Running {self.program}")
            sys.stdout.write(text_of(self.out))
            sys.stdout.flush()


def of_program(message):
    """The groups of a program that cargo has built."""
    target = message["target"]
    manifest = message["manifest_path"]
    package = re.search(r'^name = "(.*)"', open(manifest).read(), re.MULTILINE)[1]
    path, folder = message["executable"], os.path.dirname(manifest)
    if "test" not in target["kind"]:
        return [Group(package, path, folder)]
    if package != "netplumb" or target["name"] not in BY_MODULE:
        return [Group(f"{package}/{target['name']}", path, folder)]
    listed = subprocess.run(
        [path, "--list", "--format", "terse"], check=True, capture_output=True, text=True
    )
    modules = {}
    for module, test in re.findall(r"^(\w+)::(\S+): test$", listed.stdout, re.MULTILINE):
        modules.setdefault(module, []).append(test)
    alone = target["name"] == "alone"
    return [
        Group(f"{package}/{module}", path, folder, f"{module}::", tests, alone)
        for module, tests in modules.items()
    ]


def groups(built):
    """All of them, from what cargo wrote."""
    found = []
    for line in open(built):
        if line.startswith("{"):
            message = json.loads(line)
            if message.get("reason") != "compiler-artifact":
                continue
            if message["profile"]["test"] and message["executable"]:
                found += of_program(message)
    return found


def main():
    # A shell that starts us in the background has it ignored, and tests send it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parser = argparse.ArgumentParser()
    parser.add_argument("built")
    parser.add_argument("--times")
    parser.add_argument("--ran")
    parser.add_argument("--beside")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_intermixed_args()

    every = groups(asked.built)
    there = {group.name for group in every}
    # A list that names what is gone is a list of something else by now.
    only = {}
    for name in asked.names:
        group, _, test = name.partition("::")
        only.setdefault(group, []).append(test)
    wrong = [name for name in ALONE + FIRST + SOAK + list(only) if name not in there]
    if wrong:
        sys.exit(f"{asked.built} has no group of tests called {', '.join(wrong)}")
    names = list(only) + (SOAK if asked.soak else [])
    if names:
        every = [group for group in every if group.name in names]
    for group in every:
        tests = only.get(group.name, [""])
        # Named without a test, it is all of its tests.
        if all(tests):
            group.only = tests

    cpus = len(os.sched_getaffinity(0))
    shared = [group for group in every if not group.alone]
    shared.sort(key=lambda g: FIRST.index(g.name) if g.name in FIRST else len(FIRST))
    with concurrent.futures.ThreadPoolExecutor(cpus) as pool, Beside(asked.beside) as beside:
        # What is raised there is raised here.
        list(pool.map(lambda group: group.run(cpus), shared))
    for group in every:
        if group.alone:
            group.run(cpus)

    if asked.times:
        tests = sorted((test for group in every for test in group.times), reverse=True)
        with open(asked.times, "w") as file:
            file.writelines(f"{seconds:8.1f} s  {name}\n" for seconds, name in tests)
    if asked.ran:
        with open(asked.ran, "w") as file:
            file.writelines(f"{line}\n" for line in sorted(set().union(*(g.ran for g in every))))
    failed = [group.name for group in every if not group.passed]
    failed += [] if beside.passed else [asked.beside]
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
