//! Every flavour of Debian's kernel: the same source built for PREEMPT_RT, for the cloud and
//! plainly. The kernels are added to the user's catalogue where apt can fetch them.

use std::collections::BTreeMap;

use crate::common::{Place, check_whole, own_cache, tell};
use netplumb_model::class::{Context, Direction, Proto, Softirq};
use netplumb_report::analysis::{ClassView, classes};

const NET_RX: Context = Context::Softirq(Softirq::NetRx);

/// The plain kernel of a series, and its flavours.
const SERIES: [[&str; 3]; 2] = [
    ["debian", "debian:rt", "debian:cloud"],
    ["debian:6.12", "debian:6.12-rt", "debian:6.12-cloud"],
];

/// Whether guests of these kernels can be booted; a note if not.
fn add(place: &Place, kernels: &[&str]) -> bool {
    crate::common::has_guests() && crate::common::has_kernels(place, kernels)
}

/// Instructions per packet of a class.
fn each(view: &ClassView<'_>, insns: u64) -> f64 {
    insns as f64 / view.packets as f64
}

/// The classes of an arm by direction.
fn arm<'v, 'r>(
    views: &'v [ClassView<'r>],
    proto: Proto,
    kernel: &str,
) -> BTreeMap<Direction, &'v ClassView<'r>> {
    views
        .iter()
        .filter(|v| v.class.proto == proto && v.arm().name.ends_with(&format!("kernel={kernel}")))
        .map(|v| (v.class.direction, v))
        .collect()
}

/// Check that in every flavour what receives a packet is the receiver's, in a softirq; that
/// PREEMPT_RT makes sending and receiving dearer than the same source without it, mostly in the
/// parts that it replaces: locks, and pinning a task to its CPU; and that the layers and contexts
/// add up.
#[test]
fn flavours() {
    let place = Place::new();
    let all = SERIES.as_flattened();
    if !add(&place, all) {
        return;
    }
    let cache = own_cache();
    place
        .run(&format!(
            "path --link veth --proto udp,tcp --packets 50 --blocks 1 --kernel {} --cache {}",
            all.join(","),
            cache.path().display()
        ))
        .code(0);
    let recording = place.recording("path.plumb");
    check_whole(&recording);
    let views = classes(&recording);
    for [plain, rt, cloud] in SERIES {
        for proto in [Proto::Udp, Proto::Tcp] {
            let of = |kernel| arm(&views, proto, kernel);
            let (plain_views, rt_views, cloud_views) = (of(plain), of(rt), of(cloud));
            for (kernel, views) in [(plain, &plain_views), (rt, &rt_views), (cloud, &cloud_views)] {
                let (tx, rx) = (views[&Direction::Tx], views[&Direction::Rx]);
                let softirq = rx.contexts.get(&NET_RX).copied().unwrap_or(0);
                tell(&format!(
                    "{proto} {kernel}: tx {:.0}, rx {:.0}, of which softirq {:.0}",
                    each(tx, tx.total),
                    each(rx, rx.total),
                    each(rx, softirq)
                ));
                // Most of it is the system call, and TCP's answer.
                assert!(softirq * 4 > rx.total, "{proto} {kernel}: {:?}", rx.contexts);
                if proto == Proto::Udp {
                    assert_eq!(tx.contexts.get(&NET_RX), None, "{kernel}");
                }
                for view in [tx, rx] {
                    let layers: u64 = view.layers.iter().map(|(_, insns)| insns).sum();
                    assert_eq!(layers, view.total, "{proto} {kernel}");
                    assert_eq!(view.contexts.values().sum::<u64>(), view.total);
                }
            }
            for direction in [Direction::Tx, Direction::Rx] {
                let [plain, rt, cloud] =
                    [&plain_views, &rt_views, &cloud_views].map(|views| views[&direction]);
                let ratio =
                    |view: &ClassView<'_>| each(view, view.total) / each(plain, plain.total);
                let name = format!("{proto} {direction} of {}", rt.arm().name);
                assert!((1.05..2.0).contains(&ratio(rt)), "{name}: x {:.2}", ratio(rt));
                assert!((0.8..1.2).contains(&ratio(cloud)), "{}", cloud.arm().name);
                let of = |view: &ClassView<'_>| {
                    let all: u64 =
                        ["locking", "scheduling"].iter().map(|layer| view.layer_insns(layer)).sum();
                    each(view, all)
                };
                let more = each(rt, rt.total) - each(plain, plain.total);
                let there = of(rt) - of(plain);
                assert!(there > 0.4 * more, "{name}: {there:.0} of {more:.0}");
            }
        }
    }
}

/// Check that over a NIC, where PREEMPT_RT handles interrupts and their softirqs in threads,
/// a packet is received in a softirq, and its interrupt's handler is the packet's too.
#[test]
fn interrupts_in_threads() {
    let place = Place::new();
    let kernels = ["debian:rt", "debian:6.12-rt"];
    if !add(&place, &kernels) {
        return;
    }
    let cache = own_cache();
    place
        .run(&format!(
            "path --link e1000 --packets 50 --blocks 1 --kernel {} --cache {}",
            kernels.join(","),
            cache.path().display()
        ))
        .code(0);
    let recording = place.recording("path.plumb");
    check_whole(&recording);
    let views = classes(&recording);
    for kernel in kernels {
        let views = arm(&views, Proto::Udp, kernel);
        let (tx, rx) = (views[&Direction::Tx], views[&Direction::Rx]);
        tell(&format!("{kernel}: tx {:?}, rx {:?}", tx.contexts, rx.contexts));
        for context in [NET_RX, Context::OtherTask, Context::Hardirq, Context::Task] {
            assert!(rx.contexts.contains_key(&context), "{kernel}: {:?}", rx.contexts);
        }
        // The driver's watchdog has the device interrupt without a packet, but not now: guests
        // resume at a moment far from it.
        let mut handled: BTreeMap<Direction, u64> = BTreeMap::new();
        for cost in &recording.costs {
            let function = recording.nodes[cost.node as usize].function;
            let name = &recording.functions[function as usize].name;
            let arm = recording.blocks[cost.block as usize].arm as usize;
            if name == "e1000_intr"
                && cost.context == Context::OtherTask
                && recording.arms[arm].name == views[&Direction::Rx].arm().name
            {
                *handled.entry(cost.direction).or_default() += cost.calls;
            }
        }
        let of = |direction| handled.get(&direction).copied().unwrap_or_default();
        assert_eq!([of(Direction::Rx), of(Direction::Other)], [50, 0], "{kernel}");
    }
}

/// Check that a bare acknowledgement is one, whether header prediction takes it or not: without timestamps it does
/// not here, and what queues data looks at it.
#[test]
fn bare_acknowledgements() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let words = "path -q --proto tcp --family ipv6 --packets 20 --blocks 1 \
                 --sysctl net.ipv4.tcp_timestamps=0 --sysctl net.ipv4.tcp_timestamps=1 -o x.plumb";
    place.run(words).code(0);
    let recording = place.recording("x.plumb");
    let views = classes(&recording);
    for direction in [Direction::Ack, Direction::Rx] {
        let of = views.iter().filter(|v| v.class.direction == direction);
        let packets: Vec<u64> = of.clone().map(|v| v.packets).collect();
        assert_eq!(packets, [20, 20], "{direction}");
        let costs: Vec<f64> = of.map(|v| each(v, v.total)).collect();
        assert!((0.9..1.1).contains(&(costs[0] / costs[1])), "{direction}: {costs:?}");
    }
}
