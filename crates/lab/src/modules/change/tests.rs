use super::*;

/// Check that the files of a patch are found however it is written, and that a line of the text which looks like a
/// header is not taken for one.
#[test]
fn names() {
    let git = "diff --git a/drivers/x.c b/drivers/x.c\n--- a/drivers/x.c\n+++ b/drivers/x.c\n\
               @@ -1 +1 @@\n-a\n+b\n--- a/drivers/gone.c\n+++ /dev/null\n--- /dev/null\n\
               +++ b/drivers/new.c\t2026-01-01\n";
    let expected = ["a/drivers/gone.c", "b/drivers/new.c", "b/drivers/x.c"];
    assert_eq!(names_in(git), expected.map(PathBuf::from));
    assert!(names_in("+++ b/x.c\nhello\n--- a\nthen\n+++ b\n").is_empty());
}

/// Check where names lead, from the top of the source or from the module's own folder, and
/// that none leads out of it.
#[test]
fn targets() {
    let folder = Path::new("drivers/net/usb");
    let to = |name: &str| target(Path::new(name), folder).map(|t| (t.strip, t.file));
    let file = |strip, file: &str| Some((strip, PathBuf::from(file)));
    assert_eq!(to("b/drivers/net/usb/x.c"), file(1, "drivers/net/usb/x.c"));
    assert_eq!(to("drivers/net/usb/x.c"), file(0, "drivers/net/usb/x.c"));
    assert_eq!(to("b/x.c"), file(1, "drivers/net/usb/x.c"));
    assert_eq!(to("x.c"), file(0, "drivers/net/usb/x.c"));
    assert_eq!(to("b/include/linux/usb.h"), file(1, "include/linux/usb.h"));
    for elsewhere in ["b/net/core/dev.c", "../x.c", "/etc/passwd", "a/../../x.c"] {
        assert_eq!(to(elsewhere), None, "{elsewhere}");
    }
}

/// Check that the first reason why a patch does not apply is reported, with its file.
#[test]
fn reasons() {
    let hunk = "patching file drivers/x.c\nHunk #1 FAILED at 1407.\n1 out of 1 hunk FAILED\n";
    assert_eq!(why_not(hunk), "drivers/x.c: Hunk #1 FAILED at 1407");
    let applied =
        "patching file x.c\nReversed (or previously applied) patch detected!  Skipping patch.\n";
    assert_eq!(why_not(applied), "x.c: Reversed (or previously applied) patch detected!");
}

/// Check that spatch's error about a semantic patch is reported with its place, that a patch without rules is reported
/// as such, and that the reason is never empty.
#[test]
fn refusals_of_spatch() {
    let parse = "init_defs_builtins: /usr/lib/coccinelle/standard.h\nmeta: parse error: \n\
                 File \"/w/x.cocci\", line 3, column 0, charpos = 17\n  around = '@@',\n  \
                 whole content = @@\n\n";
    assert_eq!(refusal(parse), "line 3, column 0: syntax error at '@@'");
    let empty = "init_defs_builtins: /x.h\nunexpected code before the first rule: [0; (69)]\n\n";
    assert!(refusal(empty).contains("no rule"));
    assert_eq!(
        refusal("init_defs_builtins: /x.h\n\nFatal error: out of memory\n\n"),
        "Fatal error: out of memory"
    );
    assert_eq!(refusal("\n"), "it printed nothing");
}

/// Check that the objects of a module are those that the Makefile lists for it alone.
#[test]
fn makefiles() {
    let text = "obj-$(CONFIG_A) += asix.o\nasix-y := asix_devices.o \\\n\tcommon.o # both\n\
                asix-$(CONFIG_B) += more.o\nasix2-y := other.o\n";
    let objects: Vec<String> = objects(text, "asix").into_iter().collect();
    assert_eq!(objects, ["asix_devices.o", "common.o", "more.o"]);
}

/// Check that a patch of C files is taken, and that nothing else is in one: no new file, no Makefile by either
/// name, no renaming, no link, no script; nor indented, as patch takes it.
#[test]
fn patches_of_c_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("x.patch");
    let of = |text: &str| {
        fs::write(&path, text).unwrap();
        of_c_files(&path).map_err(|error| error.to_string())
    };
    let plain = "usbnet: return\n\ncopy nothing to a queue\n\ndiff --git a/x.c b/x.c\nindex 12..34 100644\n--- a/x.c\n+++ b/x.c\t2026\n\
                 @@ -1 +1 @@\n-a\n+b\n--- a/old.h\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n";
    assert_eq!(of(plain).unwrap(), plain);
    for line in [
        "--- a/Makefile",
        "--- /dev/null",
        "+++ b/Kbuild",
        "--- \"a/x.c\"",
        "--- a/Makefile x.c",
        "Index: Makefile",
        "rename to Makefile",
        "copy to Makefile",
        "new file mode 120000",
        "new mode 100755",
        "GIT binary patch",
        " --- a/Makefile",
        "X\t+++ b/Makefile",
    ] {
        let error = of(&format!("{plain}{line}\n")).unwrap_err();
        assert!(error.contains(&format!("(`{line}`)")), "{error}");
    }
}
