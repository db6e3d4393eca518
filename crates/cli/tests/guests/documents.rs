//! README.md and the guide are true: the commands that they show are run, and what they
//! print is compared with what stands there.

mod experiment_reference;
mod markdown;
mod session;
mod shape;

/// A test for each document that shows commands with their output.
macro_rules! documents {
    ($($test:ident = $path:literal,)*) => {
        const DOCUMENTS: &[&str] = &[$($path),*];
        $(
            /// Check that what the document shows is what happens.
            #[test]
            fn $test() {
                session::check($path);
            }
        )*
    };
}

documents! {
    readme = "README.md",
    first_steps = "docs/guide/first-steps.md",
    reading = "docs/guide/reading.md",
    comparing = "docs/guide/comparing.md",
    experiments = "docs/guide/experiments.md",
    ci = "docs/guide/ci.md",
    bench = "docs/guide/bench.md",
    knapsack = "docs/guide/knapsack.md",
    readahead = "docs/guide/readahead.md",
    topologies = "docs/guide/topologies.md",
}

/// Check that every document with a command and its output is run.
#[test]
fn no_document_is_left_out() {
    for document in markdown::all() {
        let shows = document.blocks.iter().any(|b| b.language == "console");
        assert_eq!(shows, DOCUMENTS.contains(&document.name.as_str()), "{}", document.name);
    }
}

/// Check that whatever a document shows without a prompt is a command, and not output that nothing
/// compares: output belongs in a `console` block, below the command that prints it, or, where it
/// can't be run here, in one marked as `text`.
#[test]
fn outputs_have_their_commands() {
    const PROGRAMS: &[&str] = &[
        "alias",
        "apt-get",
        "callgrind_annotate",
        "docs/guide/ci/compare.sh",
        "gcc",
        "git",
        "go",
        "cargo",
        "clang",
        "kcachegrind",
        "make",
        "node",
        "npm",
        "perf",
        "plumb",
        "rsvg-convert",
        "scripts/config",
        "sqlite3",
        "sudo",
    ];
    for document in markdown::all() {
        for block in document.blocks.iter().filter(|b| b.language.is_empty()) {
            for (at, line) in block.command_lines() {
                let program = line.split_whitespace().next().unwrap();
                assert!(
                    PROGRAMS.contains(&program),
                    "{}: `{line}` begins with no program that the documents call: a block of \
                     commands and their output begins with ```console, one of another kind says \
                     which",
                    document.place(block.at.start + at)
                );
            }
        }
    }
}
