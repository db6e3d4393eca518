use super::*;

/// QEMU, or nothing and a message.
fn qemu() -> Option<PathBuf> {
    let found = find_qemu().ok();
    if found.is_none() {
        netplumb_testkit::skip("no QEMU");
    }
    found
}

/// Check that the guest runs to its end under TCG, in far less time than the limit.
#[test]
fn a_guest_runs_under_tcg() {
    let Some(qemu) = qemu() else { return };
    let boot = boot(&qemu, Accelerator::Tcg);
    assert!(matches!(boot, Boot::Ran { .. }), "{boot:?}");
}

/// Check that a guest under KVM is waited for and judged, whether it runs or not.
#[test]
fn a_guest_under_kvm_is_judged() {
    let Some(qemu) = qemu() else { return };
    let start = Instant::now();
    let boot = boot(&qemu, Accelerator::Kvm);
    assert!(start.elapsed() < LIMIT + Duration::from_secs(2));
    // What is there to be opened may hang or die; what is not there never starts.
    let kvm = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm");
    match kvm {
        Ok(_) => assert!(!matches!(boot, Boot::NotStarted { .. }), "{boot:?}"),
        Err(_) => {
            let Boot::Died { said, .. } = &boot else {
                panic!("without /dev/kvm: {boot:?}");
            };
            assert!(said.to_lowercase().contains("kvm"), "{said}");
        }
    }
}

/// Check that a program that is no QEMU is not taken for one.
#[test]
fn another_program_is_not_qemu() {
    let boot = boot(Path::new("/bin/true"), Accelerator::Tcg);
    assert!(matches!(boot, Boot::Died { .. }), "{boot:?}");
    let error = version(Path::new("/bin/true")).unwrap_err();
    assert!(
        error.starts_with("it does not print its version"),
        "{error}"
    );
    let gone = super::boot(Path::new("/nonexistent"), Accelerator::Tcg);
    assert!(matches!(gone, Boot::NotStarted { .. }), "{gone:?}");
}

/// Check that a program that never ends is killed at the limit, waited for, and its words kept.
#[test]
fn a_child_that_hangs_is_killed() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo started; exec sleep 60"]);
    let ended = run::run(command, &[], Duration::from_millis(200)).unwrap();
    assert!(
        matches!(&ended, Ended::Killed { output } if output == "started\n"),
        "{ended:?}"
    );
}

/// Check that a child sees the files that it is given, and no others.
#[test]
fn a_child_is_given_its_files_and_nothing_else() {
    let file = memory_file(c"test", b"hello").unwrap();
    let other = memory_file(c"test", b"hidden").unwrap();
    let cat = |path: String| {
        let mut command = Command::new("/bin/cat");
        command.arg(path);
        run::run(command, &[&file], LIMIT).unwrap()
    };
    assert_eq!(cat(path_of(&file)).output(), "hello");
    assert!(!cat(path_of(&other)).output().contains("hidden"));
}

/// Check that QEMU says whether it takes plugins, and that bytes that are no plugin are refused
/// for what they are.
#[test]
fn plugin_support_is_asked_for() {
    let Some(qemu) = qemu() else { return };
    let asked = probe_plugin(&qemu, None);
    assert!(
        matches!(asked, PluginSupport::Untried | PluginSupport::NotCompiledIn),
        "{asked:?}"
    );
    if asked == PluginSupport::Untried {
        let garbage = probe_plugin(&qemu, Some(b"this is no shared object"));
        assert!(
            matches!(garbage, PluginSupport::Refused { .. }),
            "{garbage:?}"
        );
    }
}

/// Check that every way in which a QEMU turns a plugin down is told apart.
#[test]
fn refusals_are_told_apart() {
    let old = "qemu-system-x86_64: -plugin x.so: invalid option";
    assert_eq!(read_refusal(old), PluginSupport::NotCompiledIn);
    let new = "qemu-system-x86_64: plugin interface not enabled in this build";
    assert_eq!(read_refusal(new), PluginSupport::NotCompiledIn);
    let low = "Could not load plugin x.so: plugin requires API version 1, but this QEMU supports \
               only a minimum version of 2";
    let PluginSupport::OtherVersion {
        built_for,
        supported,
        ..
    } = read_refusal(low)
    else {
        panic!("not a matter of versions");
    };
    assert_eq!((built_for, supported), (Some(1), Some(2)));
    let high = "Could not load plugin x.so: plugin requires API version 4, but this QEMU supports \
                only up to version 1";
    let PluginSupport::OtherVersion {
        built_for,
        supported,
        ..
    } = read_refusal(high)
    else {
        panic!("not a matter of versions");
    };
    assert_eq!((built_for, supported), (Some(4), Some(1)));
    let none = "Could not load plugin x.so: plugin does not declare API version (null)";
    assert!(matches!(
        read_refusal(none),
        PluginSupport::OtherVersion {
            built_for: None,
            supported: None,
            ..
        }
    ));
}

/// Check that the variable wins over PATH, and that a wrong one is an error, not a fallback.
#[test]
fn the_variable_wins() {
    let path = Some(OsString::from("/nonexistent"));
    let named = find_in(Some("/bin/true".into()), path.clone());
    assert_eq!(named.unwrap(), Path::new("/bin/true"));
    assert!(matches!(
        find_in(Some("/no/qemu".into()), None),
        Err(QemuMissing::Named(_))
    ));
    assert!(matches!(find_in(None, path), Err(QemuMissing::NotInPath)));
}
