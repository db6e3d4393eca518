//! Calls of programs that load and unload libraries, fork, and take turns on a thread: as many as there
//! were, of the file that was executed.

use std::fs;
use std::process::Command;

use crate::common::Place;
use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_report::analysis::class;

fn compile(place: &Place, name: &str, source: &str, words: &[&str]) {
    place.write(&format!("{name}.c"), source);
    let done = Command::new("cc")
        .args(["-O1", "-pthread", "-o", name, &format!("{name}.c")])
        .args(words)
        .current_dir(place.path("."))
        .status();
    assert!(done.unwrap().success());
}

/// Calls, own and inclusive instructions of the functions of a name in a file; of several with it, their sums.
fn cost(recording: &Recording, name: &str, module: &str) -> (u64, u64, u64) {
    let view = class(recording, 0, Direction::Run);
    let mut sums = (0, 0, 0);
    for found in &view.functions {
        let function = &recording.functions[found.function as usize];
        if function.name == name && function.module.as_deref() == Some(module) {
            sums.0 += found.calls;
            sums.1 += found.self_insns;
            sums.2 += found.inclusive_insns;
        }
    }
    sums
}

fn calls(recording: &Recording, name: &str, module: &str) -> u64 {
    cost(recording, name, module).0
}

const PLUGIN: &str = "
volatile unsigned long sink;
__attribute__((noinline)) void PLUGIN(unsigned n) { for (unsigned i = 0; i < n; i++) sink += i; }
";

/// Calls one plugin once and the other one twice, and unloads each before the next.
const LOADER: &str = r#"
#include <dlfcn.h>
int main(void)
{
	for (int i = 0; i < 6; i++) {
		void *plugin = dlopen(i % 2 ? "./libtwo.so" : "./libone.so", RTLD_NOW);
		void (*call)(unsigned) = dlsym(plugin, i % 2 ? "plug_two" : "plug_one");
		call(100);
		if (i % 2)
			call(100);
		dlclose(plugin);
	}
	return 0;
}
"#;

/// Check that calls belong to the library that was loaded, if two have equal pages and take each
/// other's place.
#[test]
fn libraries_of_one_source() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for name in ["one", "two"] {
        let (library, define) = (format!("lib{name}.so"), format!("-DPLUGIN=plug_{name}"));
        compile(&place, &library, PLUGIN, &["-shared", "-fPIC", &define]);
    }
    compile(&place, "loader", LOADER, &["-ldl"]);
    place.run("path -q -o x.plumb --with ./libone.so --with ./libtwo.so -- ./loader").code(0);
    let recording = place.recording("x.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    let one = cost(&recording, "plug_one", "libone.so");
    let two = cost(&recording, "plug_two", "libtwo.so");
    assert_eq!((one.0, two.0), (3, 6));
    assert_eq!(one.1 * 2, two.1);
    place.nothing_runs();
}

/// Check that copies of a program are two, also if they have the same name.
#[test]
fn copies_of_a_program() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let source = "__attribute__((noinline)) void work(void) { __asm__ volatile(\"\"); }\n\
                  int main(int n, char **words) { while (n--) work(); return 0; }\n";
    compile(&place, "first", source, &[]);
    fs::create_dir(place.path("other")).unwrap();
    for copy in ["second", "other/second"] {
        fs::copy(place.path("first"), place.path(copy)).unwrap();
    }
    place.write("all.sh", "#!/bin/sh\n./first\n./second 2\n./other/second 2 3\n./first\n");
    place
        .run("path -q -o x.plumb --with ./first --with ./second --with ./other --with all.sh -- sh all.sh")
        .code(0);
    let recording = place.recording("x.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    assert_eq!(calls(&recording, "work", "first"), 2);
    let folder = place.path(".").canonicalize().unwrap();
    let folder = folder.file_name().unwrap().to_string_lossy();
    assert_eq!(calls(&recording, "work", &format!("{folder}/second")), 2);
    assert_eq!(calls(&recording, "work", "other/second"), 3);
    assert_eq!(calls(&recording, "main", "first"), 2);
    place.nothing_runs();
}

/// Forks, runs itself, makes threads and takes signals.
const MANY: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
volatile unsigned long sink;
#define WORK __attribute__((noinline)) void
WORK in_child(void) { sink++; }
WORK in_thread(void) { sink++; }
WORK in_exec(void) { sink++; }
WORK in_handler(int signal) { sink += signal; }
static void *body(void *arg) { for (int i = 0; i < 7; i++) in_thread(); return arg; }
int main(int n, char **words)
{
	if (n > 1) {
		for (int i = 0; i < 5; i++) in_exec();
		return 0;
	}
	signal(SIGUSR1, in_handler);
	for (int i = 0; i < 11; i++) raise(SIGUSR1);
	pthread_t threads[3];
	for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, body, 0);
	for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
	for (int i = 0; i < 2; i++) {
		if (!fork()) {
			for (int k = 0; k < 13; k++) in_child();
			_exit(0);
		}
		wait(0);
	}
	if (!vfork()) {
		execl(words[0], words[0], "again", (char *)0);
		_exit(1);
	}
	wait(0);
	return 0;
}
"#;

/// Check that a forked process continues in its parent's functions, and does not call them again.
#[test]
fn forks_threads_and_signals() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(&place, "many", MANY, &[]);
    place.run("path -q -o x.plumb -- ./many").code(0);
    let recording = place.recording("x.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    for (name, count) in [
        ("main", 2),
        ("in_child", 26),
        ("in_thread", 21),
        ("in_exec", 5),
        ("in_handler", 11),
        ("body", 3),
    ] {
        assert_eq!(calls(&recording, name, "many"), count, "{name}");
    }
    for name in ["fork", "_Fork"] {
        assert_eq!(calls(&recording, name, "libc.so.6"), 2, "{name}");
    }
    place.nothing_runs();
}

/// Grows the stack of one goroutine, has others wait for each other, and shrinks stacks by collecting garbage.
const GO: &str = r#"
package main

import (
	"runtime"
	"sync"
)

//go:noinline
func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

//go:noinline
func grow(n int) int {
	var a [512]int
	a[n%512] = n
	if n == 0 {
		return a[0]
	}
	return grow(n-1) + a[n%512]
}

//go:noinline
func turn(in, out chan int) { out <- <-in + 1 }

//go:noinline
func waits(in, out chan int) {
	turn(in, out)
	turn(in, out)
}

//go:noinline
func fails() { panic("on purpose") }

//go:noinline
func recovers() {
	defer func() { recover() }()
	fails()
}

var sum int

func main() {
	sum = fib(15)
	first := make(chan int)
	in := first
	for i := 0; i < 10; i++ {
		out := make(chan int)
		go waits(in, out)
		in = out
	}
	sum += grow(200)
	first <- 0
	sum += <-in
	runtime.GC()
	runtime.GC()
	first <- 0
	sum += <-in
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() { defer group.Done(); _ = grow(30 + fib(10) - 55) }()
	}
	group.Wait()
	for i := 0; i < 3; i++ {
		recovers()
	}
}
"#;

/// Check that calls of goroutines are as many as there were, wherever their stacks are moved to and on whichever thread
/// they continue, and that a function costs no less than its callees.
#[test]
fn goroutines() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("main.go", GO);
    let build = |go: &str| {
        let mut command = Command::new(go);
        command
            .args(["build", "-o", "main", "main.go"])
            .current_dir(place.path("."))
            .env("GOTOOLCHAIN", "local");
        command.status().ok()
    };
    let Some(built) = ["go", "/usr/local/go/bin/go"].iter().find_map(|go| build(go)) else {
        return netplumb_testkit::skip("no go");
    };
    assert!(built.success());
    place.run("path -q -o x.plumb -- ./main").code(0);
    let recording = place.recording("x.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    for (name, count) in [
        ("main.main", 1),
        ("main.grow", 201 + 4 * 31),
        ("main.fib", 1_973 + 4 * 177),
        ("main.waits", 10),
        ("main.turn", 20),
        ("main.main.func1", 4),
        ("main.recovers", 3),
        ("main.fails", 3),
    ] {
        assert_eq!(calls(&recording, name, "main"), count, "{name}");
    }
    let inclusive = |name| cost(&recording, name, "main").2;
    assert!(inclusive("runtime.main") > inclusive("main.main"));
    let goroutine = inclusive("main.main.func1");
    assert!(inclusive("main.main") + goroutine > inclusive("main.grow"));
    place.nothing_runs();
}
