use super::*;

use std::sync::atomic::{AtomicUsize, Ordering};

use netplumb_kernel::image::BootForm;

const RELEASE: &str = "6.1.0-test";

/// An ELF file that is accepted as a kernel: one segment to load, with the banner in it.
fn vmlinux(release: &str, salt: &str) -> Vec<u8> {
    let text = format!("Linux version {release} (builder) {salt}\n\0");
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0x100_0000u64, 64, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [120, 0x100_0000, 0x100_0000, text.len() as u64, text.len() as u64, 4] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// A raw image of arm64 with its header, and the banner after it.
fn arm64_image(release: &str) -> Vec<u8> {
    let mut out = vec![0; 0x40];
    out[0x18] = 0b1010;
    out[0x38..0x3c].copy_from_slice(b"ARM\x64");
    out.extend_from_slice(format!("Linux version {release} (builder)\n\0").as_bytes());
    out
}

/// A module of a release: an ELF file with a `.modinfo` section and section names.
fn module(release: &str) -> Vec<u8> {
    let info = format!("vermagic={release} SMP \0depends=\0");
    let names = b"\0.modinfo\0.shstrtab\0";
    let info_at = 64u64;
    let names_at = info_at + info.len() as u64;
    let sections_at = names_at + names.len() as u64;
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0, 0, sections_at] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 0, 0, 64, 3, 2] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(info.as_bytes());
    out.extend_from_slice(names);
    let sections =
        [(0u32, 0u32, 0, 0), (1, 1, info_at, info.len()), (10, 3, names_at, names.len())];
    for (name, kind, at, size) in sections {
        out.extend_from_slice(&name.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        for word in [0, 0, at, size as u64, 0, 1, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    out
}

/// A directory with an image, its configuration and its modules, and a store beside them.
struct Fixture {
    folder: tempfile::TempDir,
    store: KernelStore,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = KernelStore::new(&folder.path().join("cache"));
        let fixture = Self { folder, store };
        fixture.write("boot/vmlinuz", &vmlinux(RELEASE, "one"));
        fixture.write(&format!("boot/config-{RELEASE}"), b"CONFIG_NET=y\n");
        fixture.write(&format!("lib/modules/{RELEASE}/kernel/a.ko"), &module(RELEASE));
        fixture.write(&format!("lib/modules/{RELEASE}/modules.builtin"), b"kernel/b.ko\n");
        fixture.write(&format!("lib/modules/{RELEASE}/modules.dep"), b"kernel/a.ko:\n");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, data: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    fn add(&self, image: &str, modules: Option<&str>) -> Result<Added, KernelStoreError> {
        let modules = modules.map(|name| self.path(name));
        self.store.add_image(&self.path(image), modules.as_deref(), &mut |_| {})
    }

    /// The names in the store's directory, except the lock.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/kernels")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".lock").collect()
    }
}

/// Check that what was added is kept, found by each of its names, and removed.
#[test]
fn add_find_remove() {
    let fixture = Fixture::new();
    assert!(fixture.store.list().unwrap().is_empty());
    let added = fixture.add("boot/vmlinuz", Some("")).unwrap();
    assert!(!added.was_there);
    let entry = added.entry;
    assert_eq!((entry.release.as_str(), entry.modules), (RELEASE, 1));
    assert_eq!(fs::read(entry.unpacked()).unwrap(), vmlinux(RELEASE, "one"));
    assert_eq!(fs::read(entry.config().unwrap()).unwrap(), b"CONFIG_NET=y\n");
    assert!(entry.module_tree().unwrap().is_builtin("b"));
    assert!(!entry.modules_dir().join("modules.dep").exists());
    assert_eq!(entry.boot_image(), entry.folder.join("vmlinuz"), "no PVH entry");

    assert_eq!(fixture.store.list().unwrap().as_slice(), std::slice::from_ref(&entry));
    let path = fixture.path("boot/vmlinuz");
    for name in [RELEASE, &entry.hash, entry.short(), &entry.hash[..4], path.to_str().unwrap()] {
        assert_eq!(fixture.store.find(name).unwrap(), entry, "{name}");
    }
    fixture.store.remove(entry.short()).unwrap();
    assert!(fixture.kept().is_empty());
}

/// Check that an arm64 kernel is stored as what QEMU boots, that its entry has its architecture, and that entries
/// without one are of x86-64.
#[test]
fn architectures() {
    let fixture = Fixture::new();
    let x86 = fixture.add("boot/vmlinuz", None).unwrap().entry;
    fixture.write("boot/Image", &arm64_image("6.1.0-arm64"));
    let arm64 = fixture.add("boot/Image", None).unwrap().entry;
    assert_eq!((x86.arch, arm64.arch), (Arch::X86_64, Arch::Arm64));
    assert_eq!(arm64.boot(), BootForm::Raw);
    assert_eq!(arm64.boot_image(), arm64.folder.join("Image"));
    assert_eq!(fs::read(arm64.boot_image()).unwrap(), arm64_image("6.1.0-arm64"));
    assert!(!arm64.folder.join("vmlinux").exists());
    assert!(!arm64.folder.join("vmlinuz").exists());
    let text = |of: &KernelEntry| fs::read_to_string(of.folder.join("kernel.toml")).unwrap();
    assert!(text(&arm64).contains("format = 2") && text(&arm64).contains("arch = \"arm64\""));
    // A program from before reads it.
    assert!(text(&x86).contains("format = 1"));
    let old = text(&x86).replace("arch = \"x86-64\"\n", "");
    let old = old.split("# crc32").next().unwrap().to_owned();
    assert!(!old.contains("arch"));
    fs::write(x86.folder.join("kernel.toml"), old).unwrap();
    // One of that time has no checksums.
    fs::remove_file(x86.folder.join("sums")).unwrap();
    assert_eq!(fixture.store.find(&x86.hash).unwrap(), x86);
}

/// Check that a release of both architectures is this machine's, and that either can be named; and
/// that Debian's kernels of another one are found by all spellings of where they are from.
#[test]
fn architectures_of_names() {
    let fixture = Fixture::new();
    let x86 = fixture.add("boot/vmlinuz", None).unwrap().entry;
    let find = |name: &str| fixture.store.find(name);
    assert_eq!(find(RELEASE).unwrap(), x86);
    fixture.write("boot/Image", &arm64_image(RELEASE));
    let mut arm64 = fixture.add("boot/Image", None).unwrap().entry;
    let own = find(RELEASE).unwrap();
    assert_eq!(own.arch, Arch::OWN);
    for (name, wanted) in [("x86-64", &x86), ("amd64", &x86), ("arm64", &arm64)] {
        assert_eq!(&find(&format!("{RELEASE}:{name}")).unwrap(), wanted);
    }
    let error = find("5.4:arm64").unwrap_err();
    assert!(matches!(error, KernelStoreError::Unknown { .. }), "{error}");
    for (name, said) in
        [("debian:5.4:arm64", "debian:5.4:arm64"), ("debian:5.4", "debian:5.4:arm64")]
    {
        let error = fixture.store.find_for(name, Some(Arch::Arm64)).unwrap_err();
        assert!(
            matches!(&error, KernelStoreError::Unknown { name, .. } if name == said || Arch::OWN == Arch::Arm64),
            "{error}"
        );
    }
    let asked = |text| DebianRequest::parse(text).unwrap().source();
    arm64.note(&[asked("6.1.0-56:arm64"), asked("arm64")], None);
    arm64.save().unwrap();
    for name in ["debian:arm64", "debian:aarch64", "debian:6.1.0-56:arm64", "debian:6.1.0-56-arm64"]
    {
        assert_eq!(find(name).unwrap().hash, arm64.hash, "{name}");
    }
    let error = find("debian:6.12:arm64").unwrap_err().to_string();
    assert!(error.contains("`plumb kernel add debian:6.12:arm64`"), "{error}");
    let error = find("6.1.0-99-arm64").unwrap_err().to_string();
    let source = asked("6.1.0-99-arm64");
    assert!(error.contains(&format!("`plumb kernel add {source}`")), "{error}");
}

/// Check that a kernel that guests can't boot is refused when it is added, and nothing is kept of it.
#[test]
fn larger_pages() {
    let fixture = Fixture::new();
    let mut image = arm64_image(RELEASE);
    image[0x18] = 0b1110;
    fixture.write("boot/Image", &image);
    let error = fixture.add("boot/Image", None).unwrap_err().to_string();
    assert!(error.contains("CONFIG_ARM64_4K_PAGES"), "{error}");
    assert!(fixture.kept().is_empty());
}

/// Check that a build directory of arm64 gives its image.
#[test]
fn build_tree_of_arm64() {
    let fixture = Fixture::new();
    fixture.write("tree/arch/arm64/boot/Image", &arm64_image(RELEASE));
    fixture.write("tree/.config", b"CONFIG_NET=m\n");
    let tree = fixture.path("tree");
    let added = fixture.store.add_build_tree(&tree, &mut |_| {}).unwrap();
    assert_eq!(added.entry.arch, Arch::Arm64);
}

/// Check that the same contents are stored once, with all sources.
#[test]
fn same_content_twice() {
    let fixture = Fixture::new();
    let first = fixture.add("boot/vmlinuz", Some("lib/modules")).unwrap().entry;
    fixture.write("copy/vmlinuz", &vmlinux(RELEASE, "one"));
    fixture.write(&format!("copy/config-{RELEASE}"), b"CONFIG_NET=y\n");
    let second = fixture.add("copy/vmlinuz", Some(&format!("lib/modules/{RELEASE}"))).unwrap();
    assert!(second.was_there);
    assert_eq!(second.entry.hash, first.hash);
    assert_eq!(second.entry.sources.len(), 2);
    assert_eq!(fixture.kept(), [first.hash]);
}

/// Check that other contents of the same release are another kernel, that the release is then
/// ambiguous, and that a path means the kernel last added from it.
#[test]
fn ambiguous_and_unknown() {
    let fixture = Fixture::new();
    let error = fixture.store.find("debian").unwrap_err();
    assert!(error.to_string().contains("plumb kernel add debian"), "{error}");
    fixture.add("boot/vmlinuz", None).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(3));
    fixture.write("boot/vmlinuz", &vmlinux(RELEASE, "two"));
    let second = fixture.add("boot/vmlinuz", None).unwrap().entry;
    let error = fixture.store.find(RELEASE).unwrap_err();
    assert!(matches!(&error, KernelStoreError::Ambiguous { kernels, .. } if kernels.len() == 2));
    assert!(error.to_string().contains(second.short()), "{error}");
    let path = fixture.path("boot/vmlinuz");
    assert_eq!(fixture.store.find(path.to_str().unwrap()).unwrap(), second);
    let error = fixture.store.find("5.4").unwrap_err();
    assert!(error.to_string().contains(second.short()), "{error}");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

/// Check that a failed add leaves nothing, and that leftovers of a killed one are removed.
#[test]
fn nothing_half_done() {
    let fixture = Fixture::new();
    fixture.write("boot/garbage", b"garbage");
    let error = fixture.add("boot/garbage", None).unwrap_err();
    assert!(matches!(error, KernelStoreError::Image { .. }), "{error}");
    let error = fixture.add("boot/vmlinuz", Some("boot")).unwrap_err();
    assert!(matches!(error, KernelStoreError::NoModules { .. }), "{error}");
    assert!(fixture.kept().is_empty());

    fixture.write("cache/kernels/.adding-dead/.lock", b"");
    fixture.write("cache/kernels/.adding-dead/entry/vmlinux", b"half");
    let alive = Stage::new(&fixture.path("cache/kernels")).unwrap();
    assert_eq!(fixture.kept().len(), 1, "only the one that is alive");
    fixture.add("boot/vmlinuz", None).unwrap();
    assert_eq!(fixture.kept().len(), 2);
    drop(alive);
    assert_eq!(fixture.kept().len(), 1);
}

/// Check that concurrent adds make one entry.
#[test]
fn concurrent_adds() {
    let fixture = Fixture::new();
    let fresh = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let added = fixture.add("boot/vmlinuz", Some("")).unwrap();
                fresh.fetch_add(usize::from(!added.was_there), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(fresh.into_inner(), 1);
    assert_eq!(fixture.kept().len(), 1);
}

/// Check that modules of another kernel are refused.
#[test]
fn other_modules() {
    let fixture = Fixture::new();
    fixture.write("other/kernel/a.ko", &module("5.10.0"));
    let error = fixture.add("boot/vmlinuz", Some("other")).unwrap_err();
    assert!(matches!(error, KernelStoreError::OtherModules { .. }), "{error}");
    assert!(fixture.kept().is_empty());
}

/// Check that a build directory gives its image and the modules of its list, and no others.
#[test]
fn build_tree() {
    let fixture = Fixture::new();
    fixture.write("tree/Makefile", b"");
    let tree = fixture.path("tree");
    let error = fixture.store.add_build_tree(&tree, &mut |_| {}).unwrap_err();
    assert!(matches!(error, KernelStoreError::NotBuilt { .. }), "{error}");
    fixture.write("tree/vmlinux", &vmlinux(RELEASE, "tree"));
    fixture.write("tree/.config", b"CONFIG_NET=m\n");
    fixture.write("tree/drivers/x.ko", &module(RELEASE));
    fixture.write("tree/net/y.ko", &module(RELEASE));
    fixture.write("tree/debian/lib/x.ko", &module(RELEASE));
    fixture.write("tree/modules.order", b"drivers/x.o\nkernel/net/y.ko\n../../etc/z.o\n");
    let entry = fixture.store.add_build_tree(&tree, &mut |_| {}).unwrap().entry;
    assert_eq!(entry.module_tree().unwrap().names().collect::<Vec<_>>(), ["x", "y"]);
    assert!(entry.modules_dir().join("kernel/drivers/x.ko").is_file());
    assert_eq!(fs::read(entry.config().unwrap()).unwrap(), b"CONFIG_NET=m\n");
    // Its debug information is the tree's; a second time it is there.
    assert!(entry.debug_vmlinux().is_none() && entry.debug_bytes().is_none());
    let store = &fixture.store;
    assert!(!store.add_debug(&entry, &mut |_| {}).unwrap());
    assert!(entry.debug_vmlinux().is_some() && entry.debug_bytes().is_some());
    assert!(entry.debug_module("y").is_some() && entry.debug_module("z").is_none());
    assert!(store.add_debug(&entry, &mut |_| {}).unwrap());
}

/// Check that a kernel without known debug information is an error that explains it, and leaves nothing behind.
#[test]
fn without_debug_information() {
    let fixture = Fixture::new();
    fixture.write("vmlinux", &vmlinux(RELEASE, "image"));
    let image = fixture.path("vmlinux");
    let store = &fixture.store;
    let entry = store.add_image(&image, None, &mut |_| {}).unwrap().entry;
    let error = store.add_debug(&entry, &mut |_| {}).unwrap_err();
    assert!(matches!(error, KernelStoreError::NoDebug { .. }), "{error}");
    assert!(!entry.folder.join("debug").exists());
}

/// Check that the running kernel's image is found in all places, and that a missing one is an
/// error.
#[test]
fn running() {
    let fixture = Fixture::new();
    fixture.write("proc/sys/kernel/osrelease", b"6.1.0-test\n");
    let error = collect::find_running(fixture.folder.path()).unwrap_err();
    assert!(error.to_string().contains("boot/vmlinuz-6.1.0-test"), "{error}");
    assert_eq!(error.kind(), ErrorKind::CannotHere);
    fixture.write("usr/lib/modules/6.1.0-test/vmlinuz", b"image");
    let found = collect::find_running(fixture.folder.path()).unwrap();
    assert_eq!(found.modules, Some(fixture.path("lib/modules/6.1.0-test")));
}

/// Check the parsing of sources.
#[test]
fn sources() {
    let fixture = Fixture::new();
    fixture.write("x.deb", b"cut");
    let path = |name: &str| fixture.path(name).display().to_string();
    let parse = |text: &str| KernelSource::parse(text, None);
    assert_eq!(parse("debian").unwrap(), KernelSource::Debian(None));
    assert_eq!(parse("debian:6.1").unwrap(), KernelSource::Debian(Some("6.1".into())));
    assert_eq!(parse("running").unwrap(), KernelSource::Running);
    assert!(matches!(parse(&path("x.deb")).unwrap(), KernelSource::Deb(_)));
    assert!(matches!(parse(&path("boot/vmlinuz")).unwrap(), KernelSource::Image { .. }));
    assert!(matches!(parse(&path("boot")).unwrap(), KernelSource::BuildTree(_)));
    assert!(matches!(parse("fedora").unwrap_err(), KernelStoreError::NoSuchSource { .. }));
    let error = KernelSource::parse("debian", Some(Path::new("/lib"))).unwrap_err();
    assert!(matches!(error, KernelStoreError::ModulesNotWanted { .. }));
}

/// Check that a kernel whose description is damaged does not hide others, is an error where it may be meant, and is
/// replaced by adding it again, or removed.
#[test]
fn damaged_descriptions() {
    let fixture = Fixture::new();
    let entry = fixture.add("boot/vmlinuz", None).unwrap().entry;
    fixture.write("boot/other", &vmlinux("6.2.0-test", "two"));
    let other = fixture.add("boot/other", None).unwrap().entry;
    let damage = || fs::write(entry.folder.join("kernel.toml"), "format = ").unwrap();
    damage();
    assert_eq!(fixture.store.list().unwrap(), [other]);
    let error = fixture.store.find(RELEASE).unwrap_err().to_string();
    for part in [entry.hash.as_str(), "is damaged", "plumb doctor --clean"] {
        assert!(error.contains(part), "{error}");
    }
    let mut removed = Vec::new();
    let image = fixture.path("boot/vmlinuz");
    let mut progress = |at| {
        if let Progress::Removed(line) = at {
            removed.push(line);
        }
    };
    let again = fixture.store.add_image(&image, None, &mut progress).unwrap();
    assert!(!again.was_there && again.entry.hash == entry.hash);
    assert_eq!(removed.len(), 1, "{removed:?}");
    damage();
    let mut lines = Vec::new();
    fixture.store.clean(&mut |line| lines.push(line)).unwrap();
    assert!(lines.len() == 1 && lines[0].contains(&entry.hash), "{lines:?}");
    assert_eq!(fixture.kept().len(), 1);
}

/// Check that damage to any file of a kernel is detected, that adding it again replaces it, and that the error explains
/// how.
#[test]
fn damaged_files() {
    let fixture = Fixture::new();
    let add = || fixture.add("boot/vmlinuz", Some("")).unwrap();
    let entry = add().entry;
    for name in ["vmlinux", "vmlinuz", "config", "modules/kernel/a.ko"] {
        let path = entry.folder.join(name);
        assert!(entry.check(&|_| true).is_ok());
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, vec![0; bytes.len()]).unwrap();
        assert!(entry.check(&|_| false).is_ok(), "{name}");
        let error = entry.check(&|_| true).unwrap_err().to_string();
        for part in [name, "plumb kernel add /", "boot/vmlinuz` replaces it"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!add().was_there, "{name}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{name}");
        fs::write(&path, "").unwrap();
        assert!(entry.check(&|_| false).is_err(), "{name}");
        assert!(!add().was_there, "{name}");
        assert!(add().was_there, "{name}");
    }
}
