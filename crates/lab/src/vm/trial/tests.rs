use super::*;

/// QEMU, or none and a message.
fn qemu(arch: Arch) -> Option<PathBuf> {
    let found = find_qemu(arch).ok();
    if found.is_none() {
        netplumb_testkit::skip(&format!("no {}", arch.qemu()));
    }
    found
}

/// Check that the guest of each architecture finishes with TCG, in far less time than the timeout.
#[test]
fn a_guest_runs_under_tcg() {
    for arch in Arch::ALL {
        let Some(qemu) = qemu(*arch) else { continue };
        let boot = boot(&qemu, *arch, Accelerator::Tcg);
        assert!(matches!(boot, Boot::Ran { .. }), "{arch}: {boot:?}");
    }
}

/// Check that a guest which does not report success has not finished, whatever QEMU returns.
#[test]
fn only_a_report_is_one() {
    use rom::has_finished;
    assert!(has_finished(Arch::X86_64, Some(rom::REACHED), ""));
    assert!(!has_finished(Arch::X86_64, Some(0), "reached"));
    assert!(has_finished(Arch::Arm64, Some(0), "warning\nreached"));
    assert!(!has_finished(Arch::Arm64, Some(0), ""));
    assert!(!has_finished(Arch::Arm64, None, "reached"));
}

/// Check that a guest with KVM is waited for and described, whether it works or not.
#[test]
fn a_guest_under_kvm_is_judged() {
    let Some(qemu) = qemu(Arch::OWN) else { return };
    let start = Instant::now();
    let boot = boot(&qemu, Arch::OWN, Accelerator::Kvm);
    assert!(start.elapsed() < KVM_LIMIT * 10, "it is ended at its limit, on a busy machine later");
    // If the device exists, the guest may hang or die; otherwise it is not started.
    let kvm = std::fs::File::options().read(true).write(true).open("/dev/kvm");
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

/// Check that another program is not taken for QEMU.
#[test]
fn another_program_is_not_qemu() {
    let boot = boot(Path::new("/bin/true"), Arch::OWN, Accelerator::Tcg);
    assert!(matches!(boot, Boot::Died { .. }), "{boot:?}");
    let error = version(Path::new("/bin/true"), LIMIT, &AtomicBool::new(false)).unwrap_err();
    assert!(error.starts_with("it does not print its version"), "{error}");
    let gone = super::boot(Path::new("/nonexistent"), Arch::OWN, Accelerator::Tcg);
    assert!(matches!(gone, Boot::NotStarted { .. }), "{gone:?}");
}

/// Check that a program that never exits is killed at the timeout and waited for, and its output
/// kept.
#[test]
fn a_child_that_hangs_is_killed() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo started; exec sleep 60"]);
    let ended = run::run(command, &[], Duration::from_millis(200)).unwrap();
    assert!(matches!(&ended, Ended::Killed { output } if output == "started\n"), "{ended:?}");
}

/// Check that a child inherits the given files, and no others.
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

/// Check that support for plugins is detected, and that invalid plugins are refused.
#[test]
fn plugin_support_is_asked_for() {
    let Some(qemu) = qemu(Arch::OWN) else { return };
    let asked = probe_plugin(&qemu, Arch::OWN, None);
    assert!(matches!(asked, PluginSupport::Untried | PluginSupport::NotCompiledIn), "{asked:?}");
    if asked == PluginSupport::Untried {
        let garbage = probe_plugin(&qemu, Arch::OWN, Some(b"this is no shared object"));
        assert!(matches!(garbage, PluginSupport::Refused { .. }), "{garbage:?}");
    }
}

/// Check that all kinds of refusals of a plugin are distinguished.
#[test]
fn refusals_differ() {
    let old = "qemu-system-x86_64: -plugin x.so: invalid option";
    assert_eq!(read_refusal(old), PluginSupport::NotCompiledIn);
    let new = "qemu-system-x86_64: plugin interface not enabled in this build";
    assert_eq!(read_refusal(new), PluginSupport::NotCompiledIn);
    let low = "Could not load plugin x.so: plugin requires API version 1, but this QEMU supports \
               only a minimum version of 2";
    let PluginSupport::OtherVersion { built_for, supported, .. } = read_refusal(low) else {
        panic!("not a matter of versions");
    };
    assert_eq!((built_for, supported), (Some(1), Some(2)));
    let high = "Could not load plugin x.so: plugin requires API version 4, but this QEMU supports \
                only up to version 1";
    let PluginSupport::OtherVersion { built_for, supported, .. } = read_refusal(high) else {
        panic!("not a matter of versions");
    };
    assert_eq!((built_for, supported), (Some(4), Some(1)));
    let none = "Could not load plugin x.so: plugin does not declare API version (null)";
    assert!(matches!(
        read_refusal(none),
        PluginSupport::OtherVersion { built_for: None, supported: None, .. }
    ));
}

/// Check that the refusal of a QEMU without exports names the missing function.
#[test]
fn stripped_exports() {
    let said = "qemu-system-x86_64: Could not load plugin x.so: x.so: undefined symbol: \
                qemu_plugin_reset\n";
    let symbol = "qemu_plugin_reset".to_owned();
    assert_eq!(read_refusal(said), PluginSupport::NotExported { symbol });
}

/// Check that a signal is reported before QEMU's last output, which is not the cause.
#[test]
fn a_signal_comes_first() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let qemu = folder.path().join("qemu");
    let text = "#!/bin/sh\necho >&2 \"qemu: warning: hub 0 is not connected\"\nkill -SEGV $$\n";
    std::fs::write(&qemu, text).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let PluginSupport::Refused { said } = probe_plugin(&qemu, Arch::OWN, Some(b"x")) else {
        panic!("not refused");
    };
    assert_eq!(
        said,
        "QEMU ended with signal 11; its output: qemu: warning: hub 0 is not connected"
    );
    let plugin = WirePlugin { bytes: b"x", args: |_, _, _, _| Vec::new() };
    let why = probe_wire(Arch::OWN, &qemu, &plugin).unwrap_err();
    assert_eq!(
        why,
        "QEMU of a trial guest ended with signal 11; its output: qemu: warning: hub 0 is not connected"
    );
}

/// Check that the variable takes precedence over PATH, and that an invalid one is an error.
#[test]
fn the_variable_wins() {
    let path = Some(OsString::from("/nonexistent"));
    let named = find_in(Arch::X86_64, Some("/bin/true".into()), path.clone());
    assert_eq!(named.unwrap(), Path::new("/bin/true"));
    assert!(matches!(
        find_in(Arch::X86_64, Some("/no/qemu".into()), None),
        Err(QemuMissing::Named(_))
    ));
    assert!(matches!(
        find_in(Arch::Arm64, None, path.clone()),
        Err(QemuMissing::NotInPath(Arch::Arm64))
    ));
    // One that is named for an architecture is not taken for guests of another.
    let named = find_in(Arch::Arm64, Some("/bin/qemu-system-x86_64".into()), path);
    assert!(matches!(named, Err(QemuMissing::NotInPath(_))));
}
