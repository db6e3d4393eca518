use super::*;
use crate::testing;

fn tree(modules: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("kernel/net")).unwrap();
    for (name, info) in modules {
        let path = folder.path().join("kernel/net").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        testing::write_module(&path, info);
    }
    folder
}

fn names(files: &[ModuleFile]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).collect()
}

/// Check that dependencies come first and once, whatever the compression and the dash.
#[test]
fn load_order() {
    let folder = tree(&[
        ("cdc_ether.ko", "depends=usbnet\0"),
        ("usbnet.ko.xz", "depends=mii,usb-core\0"),
        ("mii.ko.gz", "depends=\0"),
        ("usb-core.ko.zst", "depends=\0"),
        ("rndis.ko", "depends=usbnet,cdc_ether\0"),
    ]);
    let tree = ModuleTree::open(folder.path()).unwrap();
    let order = tree.resolve(&["rndis", "usb_core", "cdc-ether"]).unwrap();
    assert_eq!(names(&order), ["mii", "usb_core", "usbnet", "cdc_ether", "rndis"]);
    assert!(order.iter().all(|file| file.required));
    assert!(order.iter().all(|file| file.read().unwrap().starts_with(b"\x7fELF")));
}

/// Check that a built-in module is left out, as a wish and as a dependency.
#[test]
fn builtin_is_skipped() {
    let folder = tree(&[("net.ko", "depends=virtio-ring\0softdep=pre: crc32c\0")]);
    fs::write(
        folder.path().join("modules.builtin"),
        "kernel/drivers/virtio/virtio.ko\nkernel/drivers/virtio/virtio_ring.ko\n",
    )
    .unwrap();
    fs::write(folder.path().join("modules.builtin.modinfo"), "a.alias=crc32c\0").unwrap();
    let tree = ModuleTree::open(folder.path()).unwrap();
    assert!(tree.is_builtin("virtio-ring"));
    assert_eq!(names(&tree.resolve(&["virtio", "net"]).unwrap()), ["net"]);
}

/// Check that a kernel added without modules has its own error, not a missing module's.
#[test]
fn no_modules() {
    let folder = tree(&[]);
    let tree = ModuleTree::open(folder.path()).unwrap();
    let error = tree.resolve(&["veth"]).unwrap_err().to_string();
    for part in ["\"veth\"", "without modules", "--modules DIR"] {
        assert!(error.contains(part), "{error}");
    }
}

/// Check that a missing module is named, with its dependents and similar names.
#[test]
fn missing_module() {
    let folder = tree(&[("usbnet.ko", "depends=mii\0"), ("cdc.ko", "depends=usbnet\0")]);
    let tree = ModuleTree::open(folder.path()).unwrap();
    let error = tree.resolve(&["cdc"]).unwrap_err();
    let ModuleError::Missing { name, wanted_by, .. } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), &wanted_by[..]), ("mii", &["cdc".to_owned(), "usbnet".into()][..]));
    assert!(error.to_string().contains("needed by usbnet, needed by cdc"), "{error}");

    let error = tree.resolve(&["usb_net"]).unwrap_err();
    assert!(error.to_string().contains("a similar name is usbnet"), "{error}");
}

/// Check that soft dependencies are resolved if present, also by alias, and marked as such.
#[test]
fn soft_dependencies() {
    let folder = tree(&[
        ("libcrc32c.ko", "depends=\0softdep=pre: crc32c nothing\0"),
        ("crc32c_generic.ko", "depends=crypto\0alias=crc32c\0"),
        ("crc32c_other.ko", "depends=\0"),
        ("crypto.ko", "depends=\0"),
    ]);
    let tree = ModuleTree::open(folder.path()).unwrap();
    let order = tree.resolve(&["libcrc32c"]).unwrap();
    assert_eq!(names(&order), ["crypto", "crc32c_generic", "libcrc32c"]);
    assert_eq!(order.iter().map(|f| f.required).collect::<Vec<_>>(), [false, false, true]);

    let order = tree.resolve(&["libcrc32c", "crc32c_generic"]).unwrap();
    assert!(order.iter().all(|file| file.required), "{order:?}");
}

/// Check that a soft dependency whose own needs are missing is dropped, and no error.
#[test]
fn soft_dependency_that_cannot_load() {
    let folder = tree(&[
        ("main.ko", "depends=late\0softdep=pre: helper\0"),
        ("helper.ko", "depends=late,absent\0"),
        ("late.ko", "depends=\0"),
    ]);
    let tree = ModuleTree::open(folder.path()).unwrap();
    let order = tree.resolve(&["main"]).unwrap();
    assert_eq!(names(&order), ["late", "main"]);
    assert!(order[0].required);
}

/// Check that a circle of hard dependencies is an error that shows it, and a soft one is not.
#[test]
fn circles() {
    let folder = tree(&[("a.ko", "depends=b\0"), ("b.ko", "depends=a\0")]);
    let error = ModuleTree::open(folder.path()).unwrap().resolve(&["a"]).unwrap_err();
    assert!(error.to_string().ends_with("a needs b needs a"), "{error}");

    let folder = tree(&[("a.ko", "depends=b\0"), ("b.ko", "softdep=pre: a\0")]);
    let order = ModuleTree::open(folder.path()).unwrap().resolve(&["a"]).unwrap();
    assert_eq!(names(&order), ["b", "a"]);
}

/// Check that `updates/` goes first, and that links out of the folder are not followed.
#[test]
fn updates_and_links() {
    let folder = tree(&[("nic.ko", "depends=\0")]);
    let outside = tree(&[("secret.ko", "depends=\0")]);
    fs::create_dir(folder.path().join("updates")).unwrap();
    testing::write_module(&folder.path().join("updates/nic.ko"), "depends=\0");
    std::os::unix::fs::symlink(outside.path(), folder.path().join("build")).unwrap();
    let tree = ModuleTree::open(folder.path()).unwrap();
    assert_eq!(tree.names().collect::<Vec<_>>(), ["nic"]);
    assert!(tree.find("nic").unwrap().path.ends_with("updates/nic.ko"));
}

/// Check that a module that is cut short or no module at all is refused by name.
#[test]
fn damaged_modules() {
    let folder = tree(&[("good.ko.xz", "depends=\0")]);
    let path = folder.path().join("kernel/net/good.ko.xz");
    let data = fs::read(&path).unwrap();
    fs::write(&path, &data[..data.len() / 2]).unwrap();
    fs::write(folder.path().join("bad.ko"), "not a module").unwrap();
    let tree = ModuleTree::open(folder.path()).unwrap();
    assert!(matches!(tree.resolve(&["good"]).unwrap_err(), ModuleError::Unpack { .. }));
    assert!(matches!(tree.resolve(&["bad"]).unwrap_err(), ModuleError::NotAModule { .. }));
}

/// Check that a folder that is not there is an error with its path.
#[test]
fn no_folder() {
    let error = ModuleTree::open(Path::new("/nonexistent/modules")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/modules"), "{error}");
}

/// Check that a file takes a module's place if it is built for the kernel, and that a module for another kernel, one of
/// a built-in name and other files are refused.
#[test]
fn replaced_by_a_file() {
    let folder = tree(&[
        ("veth.ko", "vermagic=6.1.0 SMP mod_unload\0"),
        ("mii.ko", "vermagic=6.1.0 SMP mod_unload\0depends=\0"),
    ]);
    fs::write(folder.path().join("modules.builtin"), "kernel/lo.ko\n").unwrap();
    let own = tempfile::tempdir().unwrap();
    let file = |name: &str, info: &str| {
        let path = own.path().join(name);
        testing::write_module(&path, info);
        path
    };
    let mut tree = ModuleTree::open(folder.path()).unwrap();
    let mine = file("veth.ko", "depends=mii\0vermagic=6.1.0 SMP mod_unload\0");
    assert_eq!(tree.replace(&mine, "6.1.0").unwrap(), "veth");
    let order = tree.resolve(&["veth"]).unwrap();
    assert_eq!(names(&order), ["mii", "veth"]);
    assert_eq!(order[1].path, mine);

    let mut refused = |path: &Path| tree.replace(path, "6.1.0").unwrap_err().to_string();
    let other = file("mii.ko", "vermagic=6.2.0 SMP\0");
    assert!(refused(&other).contains("built for kernel 6.2.0, not 6.1.0"));
    let preempt = file("mii.ko", "vermagic=6.1.0 SMP preempt mod_unload\0");
    let why = refused(&preempt);
    assert!(why.contains("`SMP preempt mod_unload`") && why.contains("`SMP mod_unload`"), "{why}");
    let built_in = file("lo.ko", "vermagic=6.1.0\0");
    assert!(refused(&built_in).contains("built into"));
    let text = own.path().join("text.ko");
    fs::write(&text, "hello").unwrap();
    assert!(refused(&text).contains("not a kernel module"));
    assert!(refused(&own.path().join("veth.o")).contains("does not end in .ko"));
}

/// Check that a request is answered by name and by alias, with what the module needs, and that modules elsewhere, or
/// without what they need, answer none.
#[test]
fn requests_have_answers() {
    let folder = tree(&[
        ("netfilter/nft_log.ko", "depends=nf_tables\0alias=nft-expr-log\0"),
        ("netfilter/nf-tables.ko", "depends=nfnetlink\0softdep=pre: crc32c\0"),
        ("netfilter/xt_lost.ko", "depends=x_tables\0alias=ipt_lost\0"),
        ("nfnetlink.ko", "depends=\0alias=net-pf-16-proto-12\0"),
        ("crc32c.ko", "depends=\0"),
    ]);
    let tree = ModuleTree::open(folder.path()).unwrap();
    let answers = tree.answers(|path| path.contains("netfilter/")).unwrap();
    let found: Vec<(Vec<String>, Vec<&str>)> =
        answers.iter().map(|answer| (answer.names.clone(), names(&answer.modules))).collect();
    let text = |all: &[&str]| all.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
    let tables = vec!["crc32c", "nfnetlink", "nf_tables"];
    let log = [&tables[..], &["nft_log"]].concat();
    assert_eq!(found, [(text(&["nf_tables"]), tables), (text(&["nft_log", "nft_expr_log"]), log),]);
    assert!(!answers[0].modules[0].required && answers[0].modules[1].required);
    assert!(tree.answers(|path| path.contains("ipset/")).unwrap().is_empty());
}
