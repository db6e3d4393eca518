//! The small kernel of the guide, from its source: minutes of every CPU, so only `make soak` builds it.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use netplumb_lab::modules::ModuleBuilder;
use netplumb_model::class::{Direction, Proto};
use netplumb_report::analysis::classes;

use crate::common::{Place, cache, check_whole, kernel, skip};

/// The guide's chapter on kernels.
const GUIDE: &str = include_str!("../../../../docs/guide/kernels.md");

/// Run the commands of the guide in the source of Debian's kernel, and check that the kernel that they build boots
/// with every kind of link, and that its packets are counted whole.
#[test]
fn the_commands_of_the_guide() {
    if !netplumb_testkit::is_soak() {
        return;
    }
    let debian = match kernel() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let builder = ModuleBuilder::new(&cache(), Arc::default());
    builder.fetch(&debian, &mut |_| {}).unwrap();
    let source = cache().join("sources").join(&debian.hash);

    let place = Place::new();
    let linux = place.path("linux");
    fs::create_dir(&linux).unwrap();
    let mut unpack = place.command("tar");
    unpack.arg("-xf").arg(source.join("source.tar.xz"));
    unpack.args(["--strip-components=1", "-C"]).arg(&linux);
    assert!(unpack.status().unwrap().success());

    let (_, block) = GUIDE.split_once("### A small one").unwrap();
    let commands = block.split("```").nth(1).unwrap();
    let plumb = Path::new(env!("CARGO_BIN_EXE_plumb")).parent().unwrap();
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths([plumb.to_owned()].into_iter().chain(env::split_paths(&path)));
    let mut shell = place.command("bash");
    shell.args(["-ec", commands]).current_dir(&linux);
    shell.env("PATH", path.unwrap());
    shell.env("PLUMB_CACHE", place.path("cache"));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Its label is tiny") && !said.contains("lacks"), "{said}");

    fs::rename(linux.join("path.plumb"), place.path("path.plumb")).unwrap();
    place
        .run(&format!(
            "path --kernel tiny --cache {} --link virtio-net,e1000 --proto udp,tcp -o nics.plumb",
            place.path("cache").display()
        ))
        .code(0);
    for file in ["path.plumb", "nics.plumb"] {
        let recording = place.recording(file);
        check_whole(&recording);
        let views = classes(&recording);
        let measured: BTreeSet<_> = views
            .iter()
            .map(|view| (view.arm().name.clone(), view.class.proto, view.class.direction))
            .collect();
        for arm in &recording.arms {
            let proto = match arm.name.contains("udp") {
                true => Proto::Udp,
                false => Proto::Tcp,
            };
            for direction in [Direction::Tx, Direction::Rx] {
                assert!(measured.contains(&(arm.name.clone(), proto, direction)), "{measured:?}");
            }
        }
        assert_eq!(recording.arms.len(), 4, "{file}");
    }
}
