//! Every setting on interfaces of a throwaway namespace: applied, read back, restored; and what a
//! killed run has left. Needs root.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use netplumb_knobs::{Applied, Journal, KnobError, Nic, PRESENT, Setting, Used, recover_in};
use netplumb_model::experiment::{Channel, Coalescing, Offload, Ring, Steering};
use netplumb_sys::netns::Namespace;
use netplumb_testkit::has_root;
use tempfile::TempDir;

/// A namespace with v0, whose peer is in another one.
struct Ground {
    namespace: Namespace,
    _peer: Namespace,
    folder: TempDir,
}

impl Ground {
    /// What settings are, as they read back.
    fn values(&self, all: &[(Setting, &str)]) -> Vec<String> {
        let read = all.iter().map(|(s, _)| s.read(&self.namespace).unwrap());
        read.collect()
    }

    fn new() -> Ground {
        let [namespace, peer] = [(); 2].map(|()| Namespace::new().unwrap());
        let (here, there) = ([2, 0x4e, 0x50, 0, 0, 1], [2, 0x4e, 0x50, 0, 0, 2]);
        namespace.add_veth(("v0", here), ("p0", there), &peer, Some(2)).unwrap();
        for (namespace, name) in [(&namespace, "v0"), (&peer, "p0")] {
            let (index, _) = namespace.device(name).unwrap();
            namespace.set_up(index, None).unwrap();
        }
        Ground { namespace, _peer: peer, folder: TempDir::new().unwrap() }
    }

    fn nic(&self) -> Nic {
        let states = self.namespace.device_states().unwrap();
        Nic::from_state(states.iter().find(|s| s.name == "v0").unwrap())
    }

    fn journal(&self, settings: &[(Setting, &str)]) -> Arc<Journal> {
        let planned = settings.iter().map(|(s, to)| s.planned(to));
        let nics = [self.nic()];
        let used = Used { nics: &nics, ..Used::default() };
        let journal = Journal::begin_in(self.folder.path(), &self.namespace, used, planned);
        Arc::new(journal.unwrap())
    }

    fn knobs(&self, journal: &Arc<Journal>) -> Applied {
        let namespace = Namespace::from(self.namespace.try_clone().unwrap());
        Applied::new(namespace, Some(Arc::clone(journal)))
    }

    fn files(&self) -> usize {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        files.filter(|f| f.file_name().to_string_lossy().ends_with(".journal")).count()
    }

    /// As if the run had been killed: its journal, which no process holds, in a separate directory.
    fn killed(&self) -> TempDir {
        let left = TempDir::new().unwrap();
        for file in fs::read_dir(self.folder.path()).unwrap().flatten() {
            fs::copy(file.path(), left.path().join(file.file_name())).unwrap();
        }
        left
    }
}

fn sysctl(key: &str, nic: Option<Nic>) -> Setting {
    Setting::Sysctl { key: key.into(), nic }
}

/// All kinds, each with a value that it does not have.
fn all(nic: &Nic) -> Vec<(Setting, &'static str)> {
    let nic = || nic.clone();
    let to = "198.18.2.1".parse().unwrap();
    let to_v6 = "2001:2:0:2::1".parse().unwrap();
    let bridge = "plumb-t0".to_string();
    let mut all = vec![
        (sysctl("net.ipv4.conf.all.rp_filter", None), "2"),
        (sysctl("net.ipv4.conf.{}.forwarding", Some(nic())), "1"),
        (Setting::Feature { nic: nic(), which: Offload::Gro }, "on"),
        (Setting::Mtu { nic: nic() }, "1400"),
        (Setting::Promiscuous { nic: nic() }, "on"),
        (Setting::Channel { nic: nic(), which: Channel::Rx }, "1"),
        (Setting::Queues { nic: nic() }, "1 1 0 0"),
        (Setting::NamedFeature { nic: nic(), name: "tx-tcp-segmentation".into() }, "off"),
        (Setting::Polling { nic: nic(), file: "gro_flush_timeout".into() }, "20000"),
        (Setting::Polling { nic: nic(), file: "napi_defer_hard_irqs".into() }, "2"),
        (Setting::Steering { nic: nic(), queue: "rx-0".into(), which: Steering::Rps }, "0"),
        (Setting::Steering { nic: nic(), queue: "tx-0".into(), which: Steering::Xps }, "0"),
        // With NAPI, which enabling GRO turns on.
        (Setting::Threaded { nic: nic() }, "on"),
        (Setting::Clsact { nic: nic() }, PRESENT),
    ];
    for (to, local) in [(to, true), (to_v6, true)] {
        let nic = nic();
        all.push((Setting::Route { nic, to, local }, PRESENT));
    }
    let far = "198.18.3.1".parse().unwrap();
    all.extend([
        (Setting::Route { nic: nic(), to: far, local: false }, PRESENT),
        (Setting::Neighbour { nic: nic(), address: far }, "02:00:00:00:00:07"),
        (Setting::Bridge { name: bridge.clone() }, PRESENT),
        (Setting::Master { nic: nic() }, "plumb-t0"),
        (Setting::Link { nic: nic() }, "down"),
    ]);
    let nft = std::process::Command::new("nft").arg("--version").output();
    match nft {
        Ok(_) => all
            .push((Setting::Table { family: "ip".into(), name: "netplumb_test".into() }, PRESENT)),
        Err(_) => netplumb_testkit::skip("no nft: no table of nftables"),
    }
    all
}

/// Check that every kind reads back as it was set, and is as it was in the end.
#[test]
fn as_root_every_kind() {
    if !has_root() {
        return;
    }
    let ground = Ground::new();
    let all = all(&ground.nic());
    let values = || ground.values(&all);
    let before = values();
    let journal = ground.journal(&all);
    let mut knobs = ground.knobs(&journal);
    let nic = ground.nic();
    knobs.keep(Setting::Features { nic }).unwrap();
    for ((setting, to), before) in all.iter().zip(&before) {
        assert_ne!(before, to, "{setting:?}");
        assert!(knobs.set(setting.clone(), to).unwrap(), "{setting:?}");
        assert_eq!(&setting.read(&ground.namespace).unwrap(), to);
        // Once more, it is so already.
        assert!(!knobs.set(setting.clone(), to).unwrap(), "{setting:?}");
    }
    assert_eq!(ground.files(), 1);
    drop(knobs);
    assert_eq!(values(), before);
    assert_eq!(journal.failures(), [""; 0]);
    drop(journal);
    assert_eq!(ground.files(), 0);
}

/// Check that the next start puts every kind back after a run that was killed, also where
/// the journal's last line is torn, and that once is enough.
#[test]
fn as_root_after_a_kill() {
    if !has_root() {
        return;
    }
    let ground = Ground::new();
    let all = all(&ground.nic());
    let values = || ground.values(&all);
    let before = values();
    let journal = ground.journal(&all);
    let mut knobs = ground.knobs(&journal);
    for (setting, to) in &all {
        knobs.set(setting.clone(), to).unwrap();
    }
    // It lives, and is left alone.
    let living = ground.namespace.inside(|| recover_in(ground.folder.path()));
    assert!(living.unwrap().is_empty());
    let left = ground.killed();
    std::mem::forget(knobs);
    let file = only_journal(left.path());
    let mut torn = fs::OpenOptions::new().append(true).open(&file).unwrap();
    torn.write_all(br#"{"n":99,"setting":{"kind":"mtu""#).unwrap();
    let recovered = ground.namespace.inside(|| recover_in(left.path())).unwrap();
    assert_eq!(recovered.left, [""; 0]);
    assert!(recovered.put_back.len() > all.len() / 2, "{recovered:?}");
    // The last change is the first that is reverted.
    let (last, _) = all.last().unwrap();
    assert!(recovered.put_back[0].starts_with(&last.whose()));
    assert_eq!(values(), before);
    assert!(!file.exists());
    assert!(recover_in(left.path()).unwrap().is_empty());
}

fn only_journal(folder: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(folder).unwrap().flatten().map(|f| f.path());
    let mut files = files.filter(|f| f.extension().is_some_and(|e| e == "journal"));
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

/// Check that an interface is found under another name, that another one in its place is
/// left alone, and so is what somebody else has changed.
#[test]
fn as_root_renamed_vanished_and_changed() {
    if !has_root() {
        return;
    }
    let run = |ground: &Ground, words: &str| {
        let mut command = std::process::Command::new("ip");
        command.args(words.split(' '));
        let done = ground.namespace.inside(|| command.status()).unwrap();
        assert!(done.success(), "ip {words}");
    };
    let ground = Ground::new();
    let nic = ground.nic();
    let settings = [
        (Setting::Mtu { nic: nic.clone() }, "1400"),
        (sysctl("net.ipv4.conf.{}.forwarding", Some(nic.clone())), "1"),
        (sysctl("net.ipv4.conf.all.rp_filter", None), "2"),
    ];
    let journal = ground.journal(&settings);
    let mut knobs = ground.knobs(&journal);
    for (setting, to) in &settings {
        knobs.set(setting.clone(), to).unwrap();
    }
    run(&ground, "link set v0 down");
    run(&ground, "link set v0 name wan");
    let all = "net.ipv4.conf.all.rp_filter";
    ground.namespace.set_sysctl(all, "1").unwrap();
    let left = ground.killed();
    let recovered = ground.namespace.inside(|| recover_in(left.path())).unwrap();
    assert_eq!(recovered.put_back.len(), 2, "{recovered:?}");
    assert_eq!(recovered.left.len(), 1, "{recovered:?}");
    assert!(recovered.left[0].contains(all), "{recovered:?}");
    assert_eq!(ground.namespace.sysctl(all).unwrap(), "1");
    let wan = ground.namespace.device_states().unwrap();
    let wan = wan.iter().find(|s| s.name == "wan").unwrap();
    assert_eq!(wan.mtu_bytes, 1500);
    let forwarding = ground.namespace.sysctl("net.ipv4.conf.wan.forwarding");
    assert_eq!(forwarding.unwrap(), "0");

    // Another one takes its place, name, number and all but the address.
    let again = ground.killed();
    run(&ground, "link del wan");
    run(&ground, &format!("link add v0 index {} type veth peer name other", nic.index));
    run(&ground, "link set v0 mtu 1400");
    let veth = ground.namespace.device_states().unwrap();
    assert!(veth.iter().any(|s| s.name == "v0" && s.index == nic.index));
    let recovered = ground.namespace.inside(|| recover_in(again.path())).unwrap();
    assert_eq!(recovered.put_back, [""; 0]);
    assert!(recovered.left.iter().any(|l| l.contains("gone")), "{recovered:?}");
    std::mem::forget(knobs);
}

/// Check that unannounced changes are not made, that a value that reads back otherwise is an error
/// and restored, and that two runs don't share an interface.
#[test]
fn as_root_what_is_refused() {
    if !has_root() {
        return;
    }
    let ground = Ground::new();
    let nic = ground.nic();
    let mtu = Setting::Mtu { nic: nic.clone() };
    let journal = ground.journal(&[(mtu.clone(), "1400")]);
    let mut knobs = ground.knobs(&journal);
    let error = knobs.set(mtu.clone(), "1300").unwrap_err();
    assert!(matches!(error, KnobError::NotAnnounced(_)), "{error}");
    assert_eq!(mtu.read(&ground.namespace).unwrap(), "1500");
    let error = knobs.make(mtu.clone(), "1400", || mtu.write(&ground.namespace, "1350"));
    let error = error.unwrap_err();
    assert!(matches!(error, KnobError::ReadsBack { .. }), "{error}");
    let used = Used { nics: std::slice::from_ref(&nic), ..Used::default() };
    let second = Journal::begin_in(ground.folder.path(), &ground.namespace, used, []);
    let error = second.unwrap_err();
    assert!(matches!(error, KnobError::InUse { .. }), "{error}");
    // In another namespace it is another interface, of the same number.
    let other = Ground::new();
    let third = Journal::begin_in(ground.folder.path(), &other.namespace, used, []);
    assert!(third.is_ok());
    let gone = Nic { index: 999, ..nic };
    let error = Setting::Mtu { nic: gone }.read(&ground.namespace);
    assert!(matches!(error, Err(KnobError::Gone { .. })));
}

/// Check that what a driver coalesces is set, read back and restored, also after a kill, on a tap device, whose driver
/// has one such setting; that a setting that it does not have or refuses is reported with the command that shows the
/// others, and changes nothing.
#[test]
fn as_root_coalescing() {
    if !has_root() {
        return;
    }
    let ground = Ground::new();
    let mut command = std::process::Command::new("ip");
    command.args("tuntap add dev t0 mode tap".split(' '));
    let done = ground.namespace.inside(|| command.status()).unwrap();
    assert!(done.success());
    let states = ground.namespace.device_states().unwrap();
    let nic = Nic::from_state(states.iter().find(|s| s.name == "t0").unwrap());
    let coalescing = |which| Setting::Coalescing { nic: nic.clone(), which };
    let frames = coalescing(Coalescing::RxFrames);
    let ring = Setting::Ring { nic: nic.clone(), which: Ring::Rx };
    let feature = Setting::NamedFeature { nic: nic.clone(), name: "no-such".into() };
    let all = [
        (frames.clone(), "16"),
        (coalescing(Coalescing::RxUsecs), "5"),
        (coalescing(Coalescing::AdaptiveRx), "1"),
        (ring, "64"),
        (feature, "on"),
    ];
    let before = frames.read(&ground.namespace).unwrap();
    let journal = ground.journal(&all);
    let mut knobs = ground.knobs(&journal);
    assert!(knobs.set(frames.clone(), "16").unwrap());
    for (setting, to) in &all[1..] {
        let error = knobs.set(setting.clone(), to).unwrap_err();
        assert!(matches!(error, KnobError::Missing { .. }), "{error}");
        assert!(error.to_string().contains("ethtool -"), "{error}");
    }
    assert_eq!(frames.read(&ground.namespace).unwrap(), "16");
    let left = ground.killed();
    drop(knobs);
    assert_eq!(frames.read(&ground.namespace).unwrap(), before);
    frames.write(&ground.namespace, "16").unwrap();
    let recovered = ground.namespace.inside(|| recover_in(left.path())).unwrap();
    assert_eq!(recovered.put_back, [format!("{}: {before} again", frames.whose())]);
    assert_eq!(frames.read(&ground.namespace).unwrap(), before);
}

/// Check that the CPUs of an interrupt are set, read back and restored, of one that no interface has.
#[test]
fn as_root_affinity() {
    if !has_root() {
        return;
    }
    let ground = Ground::new();
    let own = Namespace::current().unwrap();
    let states = own.device_states().unwrap();
    let of_nics: Vec<u32> = (states.iter())
        .flat_map(|state| netplumb_sys::interrupts::of_nic(&own, &state.name).unwrap())
        .collect();
    let numbers = fs::read_dir("/proc/irq").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let moves = |irq: &u32| {
        let path = format!("/proc/irq/{irq}/smp_affinity_list");
        let now = fs::read_to_string(&path).unwrap_or_default();
        now.contains(['-', ',']) && fs::write(&path, now.trim()).is_ok()
    };
    let irq = numbers.filter(|irq| !of_nics.contains(irq)).find(moves);
    let Some(irq) = irq else {
        netplumb_testkit::skip("no interrupt can be moved: there is one CPU");
        return;
    };
    let setting = Setting::Affinity { irq };
    let all = [(setting.clone(), "0"), (setting.clone(), "9999")];
    let before = ground.values(&all);
    let journal = ground.journal(&all);
    let mut knobs = ground.knobs(&journal);
    assert!(knobs.set(setting.clone(), "0").unwrap());
    let error = knobs.set(setting.clone(), "9999").unwrap_err().to_string();
    assert!(error.contains("online"), "{error}");
    assert_eq!(setting.read(&ground.namespace).unwrap(), "0");
    drop(knobs);
    assert_eq!(ground.values(&all), before);
}
