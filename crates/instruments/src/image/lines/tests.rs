use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::dwarf::{debug_link, debug_link_checksum, has_lines};
use super::super::elf::image;
use super::files::push;
use super::*;

/// `twice` is inlined, `hidden` is not; `main` is on line 8.
const SOURCE: &str = "#include \"twice.h\"
static __attribute__((noinline)) int hidden(int n)
{
\treturn n % 7;
}

__attribute__((noinline))
int open_to_all(int n)
{
\tn = twice(n);
\treturn hidden(n) + 1;
}
int main(int argc, char **argv) { (void)argv; return open_to_all(argc); }
";
const HEADER: &str = "static inline __attribute__((always_inline)) int twice(int n)
{
\tasm volatile(\"nop\");
\treturn 2 * n;
}
";

fn go_on() -> bool {
    true
}

fn compile(folder: &Path, words: &[&str]) -> Vec<u8> {
    fs::write(folder.join("x.c"), SOURCE).unwrap();
    fs::write(folder.join("twice.h"), HEADER).unwrap();
    let done = Command::new("cc")
        .args(["-O1", "-o", "x", "x.c"])
        .args(words)
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(done.success());
    fs::read(folder.join("x")).unwrap()
}

fn tool(folder: &Path, words: &[&str]) {
    let done = Command::new(words[0]).args(&words[1..]).current_dir(folder).status().unwrap();
    assert!(done.success(), "{words:?}");
}

/// First address, and all of them, of a function.
fn addresses(file: &[u8], name: &str) -> (u64, Vec<u64>) {
    let image = image("x", file, None).unwrap();
    let function = image.functions.iter().find(|f| f.name == name).unwrap();
    (function.start, (function.start..function.end).collect())
}

/// A line as `FILE:LINE`, without the folder.
fn location(lines: &Lines, line: Option<FileLine>) -> String {
    line.map_or("-".into(), |(file, line)| {
        let path = &lines.files[file as usize];
        assert!(path.starts_with('/'), "{path}");
        format!("{}:{line}", path.rsplit('/').next().unwrap())
    })
}

/// Check that definitions and lines match the source, inlined code's too, whatever the
/// version of DWARF, packed or not, and that a file without DWARF has none.
#[test]
fn what_a_compiler_makes() {
    let folder = tempfile::tempdir().unwrap();
    for words in
        [&["-g"][..], &["-gdwarf-4"], &["-gdwarf-5", "-gz"], &["-g", "-static"], &["-g", "-flto"]]
    {
        let file = compile(folder.path(), words);
        assert!(has_lines(&file));
        let (open, code) = addresses(&file, "open_to_all");
        let (hidden, _) = addresses(&file, "hidden");
        let asked = [hidden, open, 0, u64::MAX];
        let found = lines(&file, &asked, &code, &go_on).unwrap();
        let of: Vec<String> = found.functions.iter().map(|l| location(&found, *l)).collect();
        assert_eq!(of, ["x.c:2", "x.c:8", "-", "-"], "{words:?}");
        assert_eq!(found.code.len(), code.len());
        let mut of: Vec<String> = found.code.iter().map(|l| location(&found, *l)).collect();
        of.sort();
        of.dedup();
        for line in ["twice.h:3", "twice.h:4", "x.c:11"] {
            assert!(of.iter().any(|l| l == line), "{words:?}: no {line}: {of:?}");
        }
        assert!(!of.contains(&"-".to_string()), "{words:?}: {of:?}");
    }
    let bare = compile(folder.path(), &[]);
    assert!(!has_lines(&bare));
    let (open, code) = addresses(&bare, "open_to_all");
    let found = lines(&bare, &[open], &code, &go_on).unwrap();
    assert!(found.functions[0].is_none() && found.code.iter().all(Option::is_none));
    assert!(found.files.is_empty());
}

/// Check that a file names the one that has its debug information, and that lines are
/// read from that.
#[test]
fn separate() {
    let folder = tempfile::tempdir().unwrap();
    let whole = compile(folder.path(), &["-g"]);
    tool(folder.path(), &["objcopy", "--only-keep-debug", "x", "x.dbg"]);
    tool(folder.path(), &["objcopy", "--strip-debug", "--add-gnu-debuglink=x.dbg", "x"]);
    let file = fs::read(folder.path().join("x")).unwrap();
    let debug = fs::read(folder.path().join("x.dbg")).unwrap();
    assert_eq!(debug_link(&whole), None);
    let link = debug_link(&file).unwrap();
    assert_eq!(link, ("x.dbg".into(), debug_link_checksum(&debug)));
    assert!(!has_lines(&file) && has_lines(&debug));
    let (open, code) = addresses(&file, "open_to_all");
    let ask = |file: &[u8]| lines(file, &[open], &code, &go_on).unwrap();
    assert_eq!(ask(&debug), ask(&whole));
    assert_eq!(ask(&debug).functions[0].map(|(_, line)| line), Some(8));
}

/// Check that a split or assembled function has a line, of its definition or else of its
/// first instruction.
#[test]
fn parts_and_assembly() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("x.c"),
        "void abort(void);
__attribute__((noinline)) int half(int n)
{
\tif (__builtin_expect(n == 77, 0))
\t\tabort();
\treturn n + 1;
}
asm(\".globl by_hand\\n.type by_hand, @function\\nby_hand:\\n\\tret\\n.size by_hand, .-by_hand\");
int main(int argc, char **argv) { (void)argv; return half(argc); }
",
    )
    .unwrap();
    tool(folder.path(), &["cc", "-O2", "-g", "-o", "x", "x.c"]);
    let file = fs::read(folder.path().join("x")).unwrap();
    let (half, _) = addresses(&file, "half");
    let (cold, _) = addresses(&file, "half.cold");
    let found = lines(&file, &[cold, half], &[], &go_on).unwrap();
    let of: Vec<String> = found.functions.iter().map(|l| location(&found, *l)).collect();
    assert_eq!(of, ["x.c:2", "x.c:2"]);

    fs::write(
        folder.path().join("y.s"),
        ".globl main\n.type main, @function\n\nmain:\n\txor %eax, %eax\n\tret\n.size main, .-main\n.section .note.GNU-stack\n",
    )
    .unwrap();
    tool(folder.path(), &["cc", "-g", "-o", "y", "y.s"]);
    let file = fs::read(folder.path().join("y")).unwrap();
    let (main, code) = addresses(&file, "main");
    let found = lines(&file, &[main], &code, &go_on).unwrap();
    let line = location(&found, found.functions[0]);
    assert!(["y.s:4", "y.s:5"].contains(&line.as_str()), "{line}");
    assert_eq!(location(&found, found.code[2]), "y.s:6");
}

/// Check that damaged debug information is an error or has less, and nothing worse, and
/// that it is given up when there is no more patience.
#[test]
fn damage() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["-g"][..], &["-gdwarf-4"], &["-g", "-gz"]] {
        let whole = compile(folder.path(), words);
        let (open, code) = addresses(&whole, "open_to_all");
        let ask = |file: &[u8]| lines(file, &[open], &code, &go_on);
        let sections: Vec<(u64, u64)> = Elf::parse(&whole[..])
            .unwrap()
            .sections()
            .filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug")))
            .filter_map(|s| s.file_range())
            .collect();
        assert!(sections.len() > 3);
        for (start, size) in sections {
            for at in (start..start + size).step_by(3) {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut file = whole.clone();
                    file[at as usize] = value;
                    if let Ok(found) = ask(&file) {
                        assert_eq!(found.code.len(), code.len());
                    }
                }
            }
        }
        for cut in (0..whole.len()).step_by(97) {
            let _ = ask(&whole[..cut]);
        }
        let refused = lines(&whole, &[open], &code, &|| false);
        assert!(matches!(refused, Err(LinesError::TooSlow)));
    }
    assert!(matches!(lines(b"no ELF file", &[], &[], &go_on), Err(LinesError::Damaged(_))));
}

/// Check how paths are put together.
#[test]
fn paths() {
    let joined = |parts: &[&str]| {
        let mut path = String::new();
        parts.iter().for_each(|p| push(&mut path, p));
        path
    };
    assert_eq!(joined(&["/build/x", "src/./a", "b.c"]), "/build/x/src/a/b.c");
    assert_eq!(joined(&["/build/x", "/usr/include", "b.h"]), "/usr/include/b.h");
    assert_eq!(joined(&["./elf", "../sysdeps", "b.h"]), "elf/../sysdeps/b.h");
    assert_eq!(joined(&["/", "b.h"]), "/b.h");
    assert_eq!(joined(&["", "./"]), "");
}
