use super::*;

/// Check that a module takes the place of a module, and of nothing else.
#[test]
fn writes_over_modules_only() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "notes").unwrap();
    let error = write_module(&text, b"elf").unwrap_err();
    assert!(matches!(error, ModuleBuildError::Occupied { .. }), "{error}");
    assert_eq!(fs::read(&text).unwrap(), b"notes");
    let new = folder.path().join("x.ko");
    write_module(&new, b"elf").unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"elf");
    for device in ["/dev/null", "/dev/zero", "/"] {
        let error = check_target(Path::new(device)).unwrap_err();
        assert!(matches!(error, ModuleBuildError::Occupied { .. }), "{error}");
    }
    let error = write_module(&folder.path().join("none/x.ko"), b"elf").unwrap_err();
    assert!(matches!(error, ModuleBuildError::Write { .. }), "{error}");
}
