//! Topologies of this machine: packets get through, and nothing is left behind. Needs root.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use netplumb_lab::netns::{Topology, TopologyPlan, facts, names};
use netplumb_model::class::{Family, Link};
use netplumb_model::experiment::Offload;
use netplumb_model::topology::{ArmTopology, TopologySpec, presets};
use netplumb_sys::netns::Namespace;
use netplumb_testkit::has_root;

fn plan(link: Link, family: Family) -> TopologyPlan {
    TopologyPlan {
        host: None,
        link,
        family,
        topology: ArmTopology::direct(),
        queues: None,
        mtu_bytes: None,
        sysctl: BTreeMap::new(),
        offload: BTreeMap::new(),
        nics: Default::default(),
        nft: None,
        qdisc: None,
        programs: Vec::new(),
    }
}

/// The same with a preset.
fn with(plan: &TopologyPlan, preset: &str) -> TopologyPlan {
    TopologyPlan { topology: ArmTopology::preset(preset).unwrap(), ..plan.clone() }
}

/// Send a datagram from end to end; whether it arrived.
fn gets_through(topology: &Topology) -> bool {
    // The port that containers publish.
    let [at, to] = [topology.rx_address, topology.to_address].map(|to| SocketAddr::new(to, 40_002));
    let receiver = topology.rx.inside(|| UdpSocket::bind(at)).unwrap();
    let from = SocketAddr::new(topology.tx_address, 0);
    let sender = topology.tx.inside(|| UdpSocket::bind(from)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    sender.send_to(b"plumb", to).unwrap();
    let mut buffer = [0; 16];
    receiver.recv(&mut buffer).is_ok_and(|n| &buffer[..n] == b"plumb")
}

fn paths(topology: &Topology) -> Vec<PathBuf> {
    let names = topology.names.as_ref().unwrap().given().iter();
    names.map(|n| Path::new("/run/netns").join(n)).collect()
}

/// Check that packets get through every kind of topology, that others find its
/// namespaces by their names, and that no name stays.
#[test]
fn topologies_of_this_machine() {
    if !has_root() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let veth = plan(Link::Veth, family);
        for (what, plan, namespaces) in [
            ("lo", plan(Link::Lo, family), 1),
            ("pair", veth.clone(), 2),
            ("router", with(&veth, "forward"), 3),
            ("bridge", with(&veth, "bridge"), 3),
        ] {
            let began = Instant::now();
            let topology = Topology::build_named(&plan).unwrap();
            let took = began.elapsed();
            assert!(gets_through(&topology), "{what} {family}");
            let paths = paths(&topology);
            assert_eq!(paths.len(), namespaces, "{what} {family}");
            for path in &paths {
                let name = path.file_name().unwrap().to_str().unwrap();
                let found = Namespace::find(name).unwrap();
                let own = topology.all();
                let inode = found.inode().unwrap();
                assert!(own.iter().any(|n| n.inode().unwrap() == inode));
                if Path::new("/sbin/ip").exists() {
                    let listed = Command::new("/sbin/ip")
                        .args(["netns", "exec", name, "true"])
                        .status()
                        .unwrap();
                    assert!(listed.success(), "{name}");
                }
            }
            drop(topology);
            for path in &paths {
                assert!(!path.exists(), "{}", path.display());
            }
            // For whoever runs it by hand: nothing hangs on it.
            println!("{what} {family}: {took:?}");
        }
    }
}

/// Check that MTU, offloads, GRO and queues are as asked, and read back.
#[test]
fn devices_are_as_asked() {
    if !has_root() {
        return;
    }
    let wanted = TopologyPlan {
        mtu_bytes: Some(9_000),
        queues: Some(2),
        offload: BTreeMap::from([(Offload::Gro, true), (Offload::Tso, false)]),
        nics: Default::default(),
        ..plan(Link::Veth, Family::V4)
    };
    let topology = Topology::build_named(&wanted).unwrap();
    assert!(gets_through(&topology));
    let facts = facts(&topology.rx, "rx").unwrap();
    assert_eq!(facts["rx.rx0.mtu_bytes"], "9000");
    let offloads: Vec<&str> = facts["rx.rx0.offloads"].split(' ').collect();
    assert!(offloads.contains(&"gro"), "{offloads:?}");
    assert!(!offloads.contains(&"tso"), "{offloads:?}");
    let queues = topology
        .rx
        .inside(|| {
            let name = topology.names.as_ref().unwrap().given()[1].clone();
            let out = Command::new("/sbin/ip")
                .args(["-n", &name, "-d", "link", "show", "rx0"])
                .output()?;
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        })
        .unwrap();
    assert!(queues.contains("numtxqueues 2 "), "{queues}");
    assert!(queues.contains("numrxqueues 2 "), "{queues}");
}

/// Check that a failed set-up leaves no name, and reports what could not be done.
#[test]
fn what_fails_leaves_nothing() {
    if !has_root() {
        return;
    }
    let impossible = TopologyPlan {
        sysctl: BTreeMap::from([("net.core.no_such_setting".into(), "1".into())]),
        ..plan(Link::Veth, Family::V4)
    };
    let error = Topology::build_named(&impossible).unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    let own = format!(".{}.", std::process::id());
    // Other tests of this process may hold theirs: they are alive, so it is theirs that
    // a sweep must leave.
    names::sweep().unwrap();
    let journal = std::fs::read_dir("/run/netplumb").unwrap();
    for entry in journal.flatten() {
        let file_name = entry.file_name().to_string_lossy().into_owned();
        if file_name.contains(&own) {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            assert!(text.is_empty() || text.contains(file_name.split('.').next().unwrap()));
        }
    }
}

/// Check that packets get through every way of every preset that this kernel has the devices for, with both families;
/// and that what it lacks is named.
#[test]
fn as_root_presets() {
    if !has_root() {
        return;
    }
    let mut through = Vec::new();
    for spec in presets().filter_map(TopologySpec::preset) {
        for way in &spec.ways {
            for family in [Family::V4, Family::V6] {
                let topology = ArmTopology { spec: spec.clone(), way: way.clone() };
                let lacks = |name: &str| {
                    topology.spec.device(name).is_none_or(|d| d.address(family).is_none())
                };
                if lacks(&way.from) || lacks(&way.to) {
                    continue;
                }
                let what = format!("{}:{} {family}", spec.name, way.name);
                let plan = TopologyPlan { topology, ..plan(Link::Veth, family) };
                match Topology::build_named(&plan) {
                    Ok(topology) => {
                        assert!(gets_through(&topology), "{what}");
                        assert_eq!(paths(&topology).len(), spec.namespaces.len(), "{what}");
                        assert_eq!(topology.gone(&plan), None, "{what}");
                        through.push(what);
                    }
                    Err(error) => {
                        assert!(error.lacks_means(), "{what}: {error}");
                        let named = spec
                            .devices
                            .iter()
                            .any(|d| error.to_string().contains(&format!("of kind {}", d.kind)));
                        assert!(named || error.to_string().contains("nft"), "{what}: {error}");
                    }
                }
            }
        }
    }
    // Any kernel that runs these tests has pairs and bridges.
    for name in ["direct: ipv4", "forward: ipv6", "bridge: ipv4"] {
        assert!(through.iter().any(|known| known == name), "{through:?}");
    }
    assert!(names::sweep().unwrap().is_empty());
}
