//! Names of code that programs make at run time, and of programs that see other files.

use std::fs;

use super::*;

/// A program that copies a function to where it may write, twice, and works for some seconds, three times as long in
/// the one as in the other; it reports names of both to perf, of one only as it works, or of both when it ends.
const MADE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#define BYTES 256
typedef void (*code)(unsigned long);
__attribute__((noinline)) void work(unsigned long n)
{ for (volatile unsigned long i = 0; i < n; i++); }
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
static FILE *names;
static void tell(code at, const char *name)
{
	fprintf(names, "%lx %x %s\n", (unsigned long)at, BYTES, name);
	fflush(names);
}
int main(int argc, char **argv)
{
	double begun = now(), written = 0;
	char path[64];
	char *made = mmap(0, 2 * BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	code heavy = (code)made, light = (code)(made + BYTES);
	memcpy(made, work, BYTES);
	memcpy(made + BYTES, work, BYTES);
	__builtin___clear_cache(made, made + 2 * BYTES);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	const char *how = argc > 2 ? argv[2] : "";
	int none = !strcmp(how, "none"), late = !strcmp(how, "late") || none;
	for (int end = 0; end <= !none; end++) {
		if (end == late) {
			names = fopen(path, "w");
			if (!names)
				return 1;
			fprintf(names, "what is this\n");
			tell(heavy, "JS:*heavy /x.js:1:1");
		}
		while (!end && now() < begun + atof(argv[1])) {
			heavy(30000);
			light(10000);
			if (!written && !late && now() > begun + 0.3) {
				written = 1;
				tell(light, "JS:*light /x.js:2:1");
			}
		}
	}
	if (late && !none)
		tell(light, "JS:*light /x.js:2:1");
	if (!strcmp(how, "unlink"))
		unlink(path);
	return 0;
}
"#;

fn not_understood(recording: &Recording) -> u64 {
    let lost = recording.all_losses();
    let lines = lost.filter(|loss| loss.cause.contains("not understood"));
    lines.map(|loss| loss.count).sum()
}

/// Check that code made at run time has the names that its program reports to perf, late ones
/// included, though the program is gone and has removed them.
#[test]
fn names_of_a_map() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "made", MADE);
    let recording = recorded(&place, &["--", "./made", "2", "unlink"]);
    check_share(&recording, "JS:*heavy /x.js:1:1", 0.75);
    // Samples from before it had a name may be without.
    let (light, _) = share(&recording, "JS:*light /x.js:2:1");
    assert!((0.15..0.3).contains(&light), "{light}");
    let jit = recording.functions.iter().filter(|f| f.name.starts_with("JS:"));
    let modules: Vec<_> = jit.map(|f| f.module.as_deref()).collect();
    assert_eq!(modules, [Some("[JIT]"); 2]);
    assert_eq!(not_understood(&recording), 1);
}

/// Check that code has the names that its program reports to perf when it ends, in all blocks and in the file, and that
/// code without any is one function.
#[test]
fn named_at_the_end() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "made", MADE);
    let recording = recorded(&place, &["--", "./made", "3", "late"]);
    assert!(recording.blocks.len() > 2, "{}", recording.blocks.len());
    let (heavy, _) = share(&recording, "JS:*heavy /x.js:1:1");
    let (light, _) = share(&recording, "JS:*light /x.js:2:1");
    assert!((0.7..0.8).contains(&heavy), "{heavy}");
    assert!((0.2..0.3).contains(&light), "{light}");
    let of = |module: &str| {
        let all = recording.functions.iter();
        let of: Vec<&str> = (all.filter(|f| f.module.as_deref() == Some(module)))
            .map(|f| f.name.as_str())
            .collect();
        of
    };
    assert_eq!(of("[anon]"), [""; 0]);
    let recording = recorded(&place, &["--", "./made", "1", "none"]);
    let all = recording.functions.iter();
    let nameless = all.filter(|f| f.module.as_deref() == Some("[anon]"));
    let names: Vec<&str> = nameless.map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["[unknown]"]);
    // Also where the profile is interrupted.
    let mut command = place.command("timeout");
    command.args(["-s", "INT", "2", env!("CARGO_BIN_EXE_plumb"), "profile", "--duration", "60s"]);
    let _ = command.args(["--", "./made", "60", "none"]).output().unwrap();
    let recording = netplumb_store::read(&place.path("profile.plumb")).unwrap();
    let is_made = |f: &&netplumb_model::recording::Function| f.module.as_deref() == Some("[anon]");
    let names: Vec<&str> =
        recording.functions.iter().filter(is_made).map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["[unknown]"]);
}

/// Check that programs which see other files, under numbers of their own, have the names of their
/// own functions and of code that they make: with another root, and on an overlay.
#[test]
fn in_containers() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    for directory in ["root/tmp", "upper", "merged", "disk"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    with_frame_pointers(&place, "root/made", MADE);
    with_frame_pointers(&place, "root/work", WORK);
    let own = ["--mount", "--pid", "--fork", "sh", "-ec"];
    let overlay = "mount -t tmpfs none disk; mkdir disk/upper disk/work; mount -t overlay none \
                   -o lowerdir=root,upperdir=disk/upper,workdir=disk/work merged;";
    for mount in ["mount --bind root merged;", overlay] {
        for (program, function) in [("/work 2", "heavy"), ("/made 2", "JS:*heavy /x.js:1:1")] {
            let script = format!("{mount} exec chroot merged {program}");
            let words = ["--", "unshare"].into_iter().chain(own).chain([script.as_str()]);
            let recording = recorded(&place, &words.collect::<Vec<_>>());
            check_share(&recording, function, 0.75);
        }
    }
}
