//! Compiles BPF programs, for the build scripts of the crates that carry some, and makes
//! Rust of what their headers declare.

mod btf;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

/// Names the clang to use.
const CLANG: &str = "CLANG";
/// Headers of all programs, seen from the crate that is built: `kernel/` has the kernel's
/// own structures, each once. Not from where this crate was compiled: cargo takes that as
/// it is in a tree that was copied or moved with its target folder.
const SHARED: &str = "../sys/bpf";
/// What libbpf declares of the kernel's helpers.
const HELPERS: &str = "bpf/bpf_helper_defs.h";
/// A helper of the above that returns a pointer.
const POINTER: &str = "bpf_task_pt_regs";

/// Compile `src/FOLDER/NAME.bpf.c` of the crate that is built to `NAME.bpf.o` in its output folder; the programs'
/// headers are next to them, shared ones in crates/sys/bpf. The build ends where that fails. The crate has to depend on
/// libbpf-sys, whose headers are used.
pub fn compile(folder: &str, name: &str) {
    let folder = variable("CARGO_MANIFEST_DIR").join("src").join(folder);
    let source = folder.join(format!("{name}.bpf.c"));
    programs(&source, &variable("OUT_DIR").join(format!("{name}.bpf.o")));
}

/// Make `PREFIX.rs` in the output folder of what `src/FOLDER/HEADER` declares: of each
/// structure `PREFIX_some_name` a `SomeName`, which is `Plain`, and of each value of an
/// enumeration and each number `PREFIX_NAME` a constant `NAME`. The build ends where
/// that fails.
pub fn twins(folder: &str, header: &str, prefix: &str) {
    let folder = variable("CARGO_MANIFEST_DIR").join("src").join(folder);
    let out = variable("OUT_DIR");
    let prefix = format!("{prefix}_");
    let file = |end: &str| out.join(format!("{prefix}twins{end}"));
    let path = folder.join(header);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let source = file(".bpf.c");
    let made = fs::write(&source, declare(&path, &text, &prefix)).map_err(|e| e.to_string());
    let made = made.and_then(|()| {
        let object = file(".bpf.o");
        programs(&source, &object);
        let object = fs::read(object).map_err(|e| e.to_string())?;
        let rust = btf::Types::read(&object)?.emit(&prefix)?;
        let name = format!("{}.rs", prefix.trim_end_matches('_'));
        fs::write(out.join(name), rust).map_err(|e| e.to_string())
    });
    if let Err(why) = made {
        fail(&format!("no Rust can be made of {}: {why}", path.display()));
    }
    tell(&format!("rerun-if-changed={}", path.display()));
}

/// A source that puts all that a header declares into the types of its object, by variables of
/// these types.
fn declare(header: &Path, text: &str, prefix: &str) -> String {
    let mut source = format!(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include \"{}\"\n",
        header.display()
    );
    let mut numbers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(kind @ ("struct" | "enum")), Some(name), Some("{"))
                if line.starts_with(kind) && name.starts_with(prefix) =>
            {
                source += &format!("{kind} {name} *twin_{name};\n");
            }
            (Some("#define"), Some(name), Some(value))
                if name.starts_with(&prefix.to_uppercase())
                    && value.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '(') =>
            {
                numbers.push(name);
            }
            _ => {}
        }
    }
    if !numbers.is_empty() {
        let each = numbers.iter().map(|name| format!("\t{}{name} = {name},\n", btf::NUMBER));
        source += &format!("enum twins {{\n{}}} twins;\n", each.collect::<String>());
    }
    source
}

fn programs(source: &Path, out: &Path) {
    tell(&format!("rerun-if-env-changed={CLANG}"));
    let folder = source.parent().unwrap_or(Path::new("."));
    let shared = variable("CARGO_MANIFEST_DIR").join(SHARED);
    // The output is not a reason to make it again, and all that depends on it.
    let out_folder = variable("OUT_DIR");
    let read = [folder, &shared, &shared.join("kernel")];
    for folder in read.into_iter().filter(|folder| *folder != out_folder) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            tell(&format!("rerun-if-changed={}", entry.path().display()));
        }
    }
    // bpf/bpf_helpers.h as of the libbpf that is linked in.
    let libbpf = variable("DEP_BPF_INCLUDE");
    // BTF has the names of sources, and their lines, which clang reads by these names: relative ones are the same wherever
    // they are built.
    let here = out_folder.join("bpf");
    let name = folder.file_name().unwrap_or("programs".as_ref());
    for (name, to) in [(name, folder), ("shared".as_ref(), &shared), ("libbpf".as_ref(), &libbpf)] {
        let _ = fs::create_dir_all(&here).and_then(|()| fs::remove_file(here.join(name)));
        if let Err(error) = symlink(to, here.join(name)) {
            fail(&format!("{}: {error}", here.join(name).display()));
        }
    }
    let file = Path::new(name).join(source.file_name().unwrap_or_default());
    let mut clang = Command::new(env::var_os(CLANG).unwrap_or_else(|| "clang".into()));
    clang.current_dir(&here).arg("-fdebug-compilation-dir=.");
    // -g is for the BTF that libbpf makes the maps from.
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    // The programs' context is there whether they read it or not.
    clang.arg("-Wno-unused-parameter");
    clang.args(["-I", "libbpf"]);
    let results = out_folder.join("helper_results.h");
    let declared = fs::read_to_string(libbpf.join(HELPERS)).unwrap_or_default();
    match helper_results(&declared) {
        Some(text) if fs::write(&results, &text).is_ok() => {}
        _ => fail(&format!("{} can't be made of libbpf's {HELPERS}", results.display())),
    }
    clang.args(["-include", "../helper_results.h", "-I", "shared"]);
    // asm/types.h: for clang the target is BPF, so it does not look where the
    // distribution keeps the headers of a machine's kind, its own or another.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let own = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&own).is_dir() {
        clang.arg("-idirafter").arg(own);
    } else {
        // Before /usr/include, which may have an asm/ of this machine.
        let cross = format!("/usr/{machine}-linux-gnu/include");
        clang.arg("-isystem").arg(cross);
    }
    // As libbpf's own headers have it.
    let kernel = match &*machine {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    };
    clang.arg(format!("-D__TARGET_ARCH_{kernel}"));
    clang.arg("-c").arg(file).arg("-o").arg(out);
    run(
        clang,
        "the BPF programs do not compile: are clang and the kernel's headers for user space \
         (linux-libc-dev) installed?",
    );
}

/// A header that makes the result of each helper that `bpf_helper_defs.h` declares as `long` the `int` that
/// it is. Before Linux 6.4 (d7ba4cc900bf, "bpf: return long from bpf_map_ops funcs") calls of map operations
/// go straight to functions that return an `int`, so the upper half of the register is not its sign: compared
/// as 64 bits, -EEXIST is not -EEXIST. None if no helper is declared so.
fn helper_results(declared: &str) -> Option<String> {
    let names = declared.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("static long (* const ")?.split_once(')')?;
        (name != POINTER).then_some(name)
    });
    let each =
        names.map(|name| format!("#define {name}(...) helper_result({name}(__VA_ARGS__))\n"));
    let each: String = each.collect();
    (!each.is_empty()).then(|| {
        format!(
            "static inline __attribute__((always_inline)) int helper_result(long result)\n\
             {{\n\treturn result;\n}}\n{each}"
        )
    })
}

/// Run a compiler; the build ends with `failure` where it fails.
pub fn run(mut command: Command, failure: &str) {
    if !command.status().is_ok_and(|s| s.success()) {
        fail(failure);
    }
}

fn fail(why: &str) -> ! {
    tell(&format!("error={why}"));
    process::exit(1);
}

/// An environment variable that cargo sets for a build script, as a path.
pub fn variable(name: &str) -> PathBuf {
    PathBuf::from(env::var_os(name).unwrap_or_default())
}

/// Print a line for cargo: a build script's standard output is for that.
#[expect(clippy::print_stdout, reason = "cargo reads it")]
fn tell(what: &str) {
    println!("cargo::{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that helpers whose result is declared as `long` give an `int`, and no others.
    #[test]
    fn results_of_helpers() {
        let declared = "\
            static long (* const bpf_map_update_elem)(void *map, __u64 flags) = (void *) 2;\n\
            static long (* const bpf_task_pt_regs)(struct task_struct *task) = (void *) 175;\n\
            static __u64 (* const bpf_ktime_get_ns)(void) = (void *) 5;\n\
            static void *(* const bpf_map_lookup_elem)(void *map) = (void *) 1;\n";
        let made = helper_results(declared).unwrap();
        let defines: Vec<&str> = made.lines().filter(|l| l.starts_with('#')).collect();
        assert_eq!(
            defines,
            ["#define bpf_map_update_elem(...) helper_result(bpf_map_update_elem(__VA_ARGS__))"]
        );
        assert_eq!(helper_results("static int (*f)(void);"), None);
    }
}
