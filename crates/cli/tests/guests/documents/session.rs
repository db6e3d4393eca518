//! Running what a document shows.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use netplumb_lab::vm::kernels::KernelStore;
use netplumb_testkit::BLESS;
use snapbox::Data;
use snapbox::filter::NormalizeToExpected;
use snapbox::report::{Palette, write_diff};

use crate::common::{self, Place, Ran, Running, skip, tell};
use crate::documents::markdown::{Block, Document, repository};
use crate::documents::shape;

/// The kernel that the figures in the documents are of, as `plumb kernel add` takes it.
const KERNEL: &str = "debian:6.1.0-56";

/// A command of a block, and its output in the document.
struct Step {
    /// The line that it is on.
    place: String,
    command: String,
    /// Where the output is in the document.
    output: std::ops::Range<usize>,
}

/// Check that documents show what happens: their `console` blocks are run from the first to the
/// last in one directory, and the output has to match. A line `...` matches any lines, `[..]`
/// anything within a line; a command without output below it is run, but not compared.
///
/// A block's notes, which no reader sees: `exit=2` is the code that its last command ends with;
/// `shape` lets all numbers and bars stand for others of their kind; `kernel=NAME` adds the kernel;
/// `file=NAME`, of a block of any language, writes it to a file.
pub(crate) fn check(name: &str) {
    let document = Document::read(name);
    let (catalogue, figures) = match catalogue() {
        Ok(found) => found,
        Err(why) => return skip(&why),
    };
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_plumb"), place.path("bin/plumb")).unwrap();
    symlink(repository().join("docs"), place.path("docs")).unwrap();
    // Programs are built in it.
    common::copy_folder(&repository().join("experiments"), &place.path("experiments"));
    let mut wrong = Vec::new();
    let mut text = document.text.clone();
    // From the end, since a new output moves the text below it.
    let mut replaced = Vec::new();
    let (mut compared, mut shaped) = (0, 0);
    // Of a kernel that the archive has dropped, no later command finds the recordings.
    let mut is_partial = false;
    for block in &document.blocks {
        if let Some(file) = block.note("file") {
            place.write(file, &block.text);
        }
        if block.language != "console" {
            continue;
        }
        if !can_run(block, &place, catalogue) {
            is_partial = true;
            continue;
        }
        let steps = steps(&document, block);
        let last = steps.len() - 1;
        for (n, step) in steps.iter().enumerate() {
            let code = match block.note("exit") {
                Some(code) if n == last => code.parse().unwrap(),
                _ => 0,
            };
            let ran = run(step, &place, catalogue);
            if is_partial && ran.stderr.contains("no such file") {
                tell(&format!("{}: not compared: {}", step.place, ran.stderr.trim()));
                continue;
            }
            if ran.status.code() != Some(code) {
                wrong.push(format!(
                    "{}: `{}` ended with {:?}, not {code}:\n{}{}",
                    step.place,
                    step.command,
                    ran.status.code(),
                    ran.stdout,
                    ran.stderr
                ));
                continue;
            }
            let expected = &document.text[step.output.clone()];
            if expected.trim().is_empty() {
                continue;
            }
            if *figures == Figures::OfAnotherKernel && !block.is("shape") {
                let printed = format!("{}{}", ran.stdout, ran.stderr);
                assert!(!printed.trim().is_empty(), "{}: {}", step.place, step.command);
                shaped += usize::from(differs(true, expected, &ran, code).is_none());
                continue;
            }
            compared += 1;
            if let Some((now, difference)) = differs(block.is("shape"), expected, &ran, code) {
                wrong.push(format!("{}: `{}`\n{difference}", step.place, step.command));
                replaced.push((step.output.clone(), now));
            }
        }
    }
    place.nothing_runs();
    if std::env::var_os(BLESS).is_some() {
        for (at, now) in replaced.into_iter().rev() {
            text.replace_range(at, &now);
        }
        fs::write(repository().join(name), text).unwrap();
    }
    tell(&format!("{name}: {compared} outputs compared"));
    if *figures == Figures::OfAnotherKernel {
        tell(&format!("{name}: {shaped} outputs differ from {KERNEL} in their figures only"));
    }
    assert!(
        wrong.is_empty(),
        "{} of the commands that {name} shows do something else now. Where the document is \
         wrong, `{BLESS}=1 cargo test --release --test documents` writes what they print into \
         it; look at the difference.\n\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

/// Whether this machine can run a block; prints a note if not.
fn can_run(block: &Block, place: &Place, cache: &Path) -> bool {
    let root = netplumb_testkit::is_root();
    if block.text.contains("sudo ") && !root {
        skip("not root: commands of the documents with sudo");
        return false;
    }
    let Some(kernel) = block.note("kernel") else {
        return true;
    };
    match add(kernel, place, cache) {
        Ok(()) => true,
        // The archive drops kernels in the end, and then nobody can run this any more.
        Err(why) => {
            tell(&format!("not compared, without the kernel: {why}"));
            false
        }
    }
}

/// The commands of a block.
fn steps(document: &Document, block: &Block) -> Vec<Step> {
    let lines = block.command_lines();
    let starts: Vec<usize> = lines.iter().map(|(at, _)| *at).collect();
    let mut steps = Vec::new();
    for (n, (at, command)) in lines.into_iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(block.text.len());
        let mut first = at;
        for line in block.text[at..end].split_inclusive('\n') {
            first += line.len();
            if !line.trim_end().ends_with('\\') {
                break;
            }
        }
        let from = block.at.start;
        steps.push(Step {
            place: document.place(from + at),
            command,
            output: from + first..from + end,
        });
    }
    assert!(
        !steps.is_empty(),
        "{}: a console block without a command",
        document.place(block.at.start)
    );
    steps
}

/// Run a command as a shell would have it, with `plumb` in its path.
fn run(step: &Step, place: &Place, cache: &Path) -> Ran {
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = place.path("bin").display().to_string();
    let mut command = place.command("sh");
    command
        .arg("-c")
        // A document has `sudo` where a command needs root; whoever runs the tests is root.
        .arg(format!("sudo() {{ \"$@\"; }}\n{}", step.command))
        .env("PATH", format!("{bin}:{path}"))
        .env("PLUMB_CACHE", cache)
        .env("HOME", place.path(""));
    Running::start(&mut command).finish()
}

/// What a block would be now and how that differs, if it does; in its figures too, or in all else.
fn differs(by_shape: bool, expected: &str, ran: &Ran, code: i32) -> Option<(String, String)> {
    let mut actual = ran.stdout.clone();
    // An error is what the document shows.
    if code != 0 {
        actual.push_str(&ran.stderr);
    }
    let trimmed = |text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        format!("{}\n", lines.join("\n").trim_end())
    };
    let (expected, mut actual) = (trimmed(expected), trimmed(&actual));
    let shown = actual.clone();
    let mut wanted = expected.clone();
    if by_shape {
        wanted = shape::shape_of(&wanted);
        actual = shape::shape_of(&actual);
    }
    let wanted = Data::text(wanted);
    let actual = NormalizeToExpected::new().redact().normalize(Data::text(actual), &wanted);
    if actual == wanted {
        return None;
    }
    let mut difference = String::new();
    write_diff(
        &mut difference,
        &wanted,
        &actual,
        Some(&"document"),
        Some(&"now"),
        Palette::plain(),
    )
    .unwrap();
    let now = match by_shape {
        true => shown,
        false => actual.to_string(),
    };
    Some((now, difference))
}

/// What the documents' figures are compared with.
#[derive(Clone, Copy, PartialEq)]
enum Figures {
    /// Figures of the same kernel.
    Same,
    /// The archive has dropped that kernel: with none.
    OfAnotherKernel,
}

/// A cache in which `debian` is the documents' kernel: the user's own, or one that links to
/// its files where Debian has released a newer kernel since. If that kernel can't be had any more, the user's
/// own. Or why there are no guests.
fn catalogue() -> Result<&'static (PathBuf, Figures), String> {
    static FOUND: OnceLock<(PathBuf, Figures)> = OnceLock::new();
    let debian = common::kernel()?;
    let cache = common::cache();
    let release = KERNEL.strip_prefix("debian:").unwrap();
    Ok(FOUND.get_or_init(|| {
        if debian.release.starts_with(release) || std::env::var_os(BLESS).is_some() {
            return (cache.clone(), Figures::Same);
        }
        match add(KERNEL, &Place::new(), &cache) {
            Ok(()) => {
                tell(&format!(
                    "the documents' figures are of {KERNEL}, and `debian` is {} here: they are \
                     compared with {KERNEL}",
                    debian.release
                ));
                (with_debian_as(KERNEL, &cache), Figures::Same)
            }
            Err(why) => {
                tell(&format!(
                    "the documents' figures are of {KERNEL}, `debian` is {} here, and the other can't \
                     be had: {why}\nThe commands are run, and figures of guests are not compared. Bring \
                     the documents to {}: `{BLESS}=1 cargo test --release --test documents` writes its \
                     figures into them; look at each difference, and change KERNEL in {}",
                    debian.release,
                    debian.release,
                    file!()
                ));
                (cache.clone(), Figures::OfAnotherKernel)
            }
        }
    }))
}

/// Add a kernel, unless it is there.
fn add(kernel: &str, place: &Place, cache: &Path) -> Result<(), String> {
    if KernelStore::new(cache).find(kernel).is_ok() {
        return Ok(());
    }
    let mut command = place.plumb("kernel add");
    command.arg(kernel).env("PLUMB_CACHE", cache);
    let ran = Running::start(&mut command).finish();
    match ran.status.success() {
        true => Ok(()),
        false => Err(ran.stderr),
    }
}

/// A cache whose only kernel is this one of another cache, under the name `debian`; saved states
/// are shared.
fn with_debian_as(kernel: &str, cache: &Path) -> PathBuf {
    let entry = KernelStore::new(cache).find(kernel).unwrap();
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents-cache");
    let folder = own.join("kernels").join(&entry.hash);
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&folder).unwrap();
    for file in fs::read_dir(&entry.folder).unwrap().flatten() {
        if file.file_name() != "kernel.toml" && file.file_name() != "sums" {
            symlink(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    let about = fs::read_to_string(entry.folder.join("kernel.toml")).unwrap();
    let debian = "\n[[sources]]\nsource = \"debian\"\nadded = \"2026-01-01T00:00:00Z\"\n";
    // Without the checksum of the earlier text.
    let about = about.split("# crc32").next().unwrap_or_default();
    fs::write(folder.join("kernel.toml"), about.to_owned() + debian).unwrap();
    let _ = fs::create_dir_all(cache.join("states"));
    symlink(cache.join("states"), own.join("states")).unwrap();
    own
}
