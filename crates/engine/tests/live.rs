//! Runs under a mock instrument: the requests to it, their order, and what is saved. Namespaces
//! need root.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netplumb_engine::EngineError;
use netplumb_engine::live::{
    LiveEnd, LiveEvent, LiveOptions, LivePlan, PROBES_OFF, PacketPlan, Source, TrafficPlan,
    run_live,
};
use netplumb_instruments::live::{Live, LiveError};
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::process::VmError;
use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::events;
use netplumb_model::message::Exit;
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::span::{StageKind, Times};
use netplumb_model::timing::{
    Attached, BUSY, DELIVERED, Filter, LATENCY_P99, Mechanism, NodeTimes, Selection, StageTimes,
    TimedFunctionInfo, TimedNode, TimingSpec, Window,
};
use netplumb_testkit::has_root;

/// The calls of an instrument, as the mock records them.
#[derive(Debug, Default)]
struct Diary {
    attached: Vec<TimingSpec>,
    open: Cell<bool>,
    windows: Cell<u32>,
    alive: Cell<u32>,
}

/// An instrument that reports what the test gives it.
#[derive(Debug)]
struct Mock {
    attached: Attached,
    diary: Rc<RefCell<Diary>>,
    proto: Option<Proto>,
    fails_after: u32,
}

impl Live for Mock {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        let diary = self.diary.borrow();
        assert!(!diary.open.replace(true), "it is open already");
        Ok(())
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        let diary = self.diary.borrow();
        assert!(diary.open.replace(false), "it is not open");
        diary.windows.set(diary.windows.get() + 1);
        if diary.windows.get() > self.fails_after {
            return Err(LiveError::System {
                doing: "read a map".into(),
                source: "it is gone".into(),
            });
        }
        let times = |ns| Times {
            count: 2,
            total_ns: 2 * ns,
            min_ns: ns,
            max_ns: ns,
            buckets: vec![(16, 2)],
        };
        let node = |parent, function| TimedNode {
            parent,
            function,
            direction: Direction::Tx,
            proto: self.proto,
            context: Context::Task,
        };
        let of = |node, ns| NodeTimes { node, times: times(ns), interruptions: 0 };
        let stage = self.proto.map(|proto| StageTimes {
            proto,
            family: Family::V4,
            direction: Direction::Tx,
            order: 0,
            name: "send".into(),
            kind: StageKind::Work,
            times: times(100),
            passed_over: 0,
            own_ns: 0,
        });
        let seen = self.proto.is_some();
        Ok(Window {
            nodes: if seen { vec![node(None, 0), node(Some(0), 1)] } else { Vec::new() },
            functions: if seen { vec![of(0, 50), of(1, 20)] } else { Vec::new() },
            stages: stage.into_iter().collect(),
            ..Window::default()
        })
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let diary = self.diary.borrow();
        diary.alive.set(diary.alive.get() - 1);
    }
}

fn mock(diary: &Rc<RefCell<Diary>>, spec: &TimingSpec, proto: Option<Proto>) -> Mock {
    let function = |name: &str| TimedFunctionInfo {
        name: name.into(),
        module: None,
        mechanism: Mechanism::FentryFexit,
        arguments: 2,
    };
    diary.borrow_mut().attached.push(spec.clone());
    let alive = diary.borrow().alive.get();
    diary.borrow().alive.set(alive + 1);
    Mock {
        attached: Attached {
            functions: vec![function("udp_sendmsg"), function("ip_output")],
            refused: [("ip_rcv".to_string(), "inlined".to_string())].into(),
            ..Attached::default()
        },
        diary: Rc::clone(diary),
        proto,
        fails_after: u32::MAX,
    }
}

fn spec() -> TimingSpec {
    TimingSpec {
        instrument: "functions".into(),
        roles: Default::default(),
        filter: Filter::default(),
        selection: Selection::default(),
        mechanism: None,
        one_packet: 0,
        profile: None,
        events: None,
        spans: None,
        calls: None,
    }
}

fn arm(proto: Proto) -> Arm {
    Arm {
        name: proto.to_string(),
        proto,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: Default::default(),
        made: None,
    }
}

fn packets(arms: Vec<Arm>, blocks: u32) -> PacketPlan {
    PacketPlan {
        topologies: Vec::new(),
        arms,
        blocks,
        long: None,
        block: None,
        packets: 20,
        warmup_packets: 5,
        rate_pps: None,
        stream: false,
        measure_cost: false,
    }
}

struct Ran {
    result: Result<LiveEnd, EngineError>,
    recording: Recording,
    /// Blocks in the recording each time that it was saved.
    saved: Vec<usize>,
    diary: Rc<RefCell<Diary>>,
    named: Vec<String>,
}

/// Run a plan; `make` makes the instrument, `at_block` is called with the number of blocks done.
fn run(
    source: Source,
    make: impl Fn(&Rc<RefCell<Diary>>, &TimingSpec) -> Result<Mock, LiveError>,
    at_block: impl Fn(u32, &AtomicBool),
) -> Ran {
    run_until(source, |diary, spec, _| make(diary, spec), at_block)
}

/// The same, where Ctrl-C may come while the instrument is made.
fn run_until(
    source: Source,
    make: impl Fn(&Rc<RefCell<Diary>>, &TimingSpec, &AtomicBool) -> Result<Mock, LiveError>,
    at_block: impl Fn(u32, &AtomicBool),
) -> Ran {
    run_as("functions", source, make, at_block)
}

/// The same, of an instrument of this name.
fn run_as(
    instrument: &'static str,
    source: Source,
    make: impl Fn(&Rc<RefCell<Diary>>, &TimingSpec, &AtomicBool) -> Result<Mock, LiveError>,
    at_block: impl Fn(u32, &AtomicBool),
) -> Ran {
    // One run at a time: a command that another starts has our sockets until it is executed,
    // and the ports of one that we have closed are not free until then.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let diary = Rc::new(RefCell::new(Diary::default()));
    let cancel = Arc::new(AtomicBool::new(false));
    let attach = |spec: &TimingSpec| {
        let mock = make(&diary, spec, &cancel)?;
        Ok((instrument, Box::new(mock) as Box<dyn Live>))
    };
    let layers = LayerRules::built_in();
    let options = LiveOptions { layers: &layers, attach: &attach, cancel: &cancel, seed: 3 };
    let plan =
        LivePlan { specs: vec![TimingSpec { instrument: instrument.into(), ..spec() }], source };
    let mut recording = Recording::default();
    let mut saved = Vec::new();
    let mut named = Vec::new();
    let result = run_live(
        &plan,
        &options,
        &mut recording,
        &mut |recording| {
            saved.push(recording.blocks.len());
            Ok(())
        },
        &mut |event| match event {
            LiveEvent::Named(run) => named.push(run.to_string()),
            LiveEvent::Block(_, done, _) => at_block(done, &cancel),
            _ => {}
        },
    );
    assert_eq!(diary.borrow().alive.get(), 0, "an instrument is still attached");
    Ran { result, recording, saved, diary, named }
}

fn gone(named: &[String]) {
    for run in named {
        for entry in std::fs::read_dir("/run/netns").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(!name.starts_with(run.as_str()), "{name} is left");
        }
    }
}

/// Check that blocks of all arms are interleaved, that each is a window and is saved at once, that
/// figures land in their blocks, and that the instrument is given the namespaces and protocols to
/// measure.
#[test]
fn arms_are_interleaved_and_saved_block_by_block() {
    if !has_root() {
        return;
    }
    let plan = packets(vec![arm(Proto::Udp), arm(Proto::Tcp)], 4);
    let ran = run(
        Source::Packets(plan),
        |diary, spec| Ok(mock(diary, spec, Some(Proto::Udp))),
        |_, _| {},
    );
    ran.result.unwrap();
    let recording = &ran.recording;
    assert!(recording.complete);
    assert_eq!(ran.saved, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]);
    for round in recording.blocks.chunks(2) {
        let arms: BTreeSet<u32> = round.iter().map(|b| b.arm).collect();
        assert_eq!(arms.len(), 2);
        assert!(round.iter().all(|b| b.index == round[0].index));
    }
    assert!(
        recording
            .blocks
            .iter()
            .all(|b| { b.ledger.offered == 20 && b.ledger.delivered == 20 && b.duration_ns > 0 })
    );
    let diary = ran.diary.borrow();
    assert_eq!(diary.windows.get(), 8);
    assert_eq!(diary.attached.len(), 1);
    assert_eq!(diary.attached[0].filter.namespaces.len(), 2);
    assert_eq!(diary.attached[0].filter.protos, [Proto::Udp, Proto::Tcp]);
    // Spans of another protocol are not part of its way.
    for (span, _) in recording.calls() {
        let own = recording.blocks[span.block as usize].arm == 0;
        let wanted = if own { Direction::Tx } else { Direction::Other };
        assert_eq!(span.direction, wanted);
    }
    assert_eq!(recording.calls().count(), 16);
    assert_eq!(recording.stages().count(), 4);
    assert_eq!(recording.functions[1].layer.as_deref(), Some("network"));
    assert_eq!(recording.nodes[1].parent, Some(0));
    assert_eq!(recording.attachments.len(), 2);
    assert_eq!(recording.environment[env::LAB], "netns");
    assert_eq!(recording.all_not_measured()["ip_rcv"], "inlined");
    gone(&ran.named);
}

/// Check that to know the cost of measuring, each arm is run without the instrument,
/// too, and that it is really off then.
#[test]
fn cost_is_measured_against_blocks_without_probes() {
    if !has_root() {
        return;
    }
    let plan = PacketPlan {
        measure_cost: true,
        block: Some(Duration::from_millis(120)),
        ..packets(vec![arm(Proto::Udp)], 3)
    };
    let ran = run(
        Source::Packets(plan),
        |diary, spec| Ok(mock(diary, spec, Some(Proto::Udp))),
        |_, _| {},
    );
    ran.result.unwrap();
    let recording = &ran.recording;
    assert_eq!(recording.arms[1].knobs[PROBES_OFF.0], PROBES_OFF.1);
    assert_eq!(recording.blocks.len(), 6);
    assert_eq!(ran.diary.borrow().windows.get(), 3);
    assert!(recording.calls().all(|(t, _)| recording.blocks[t.block as usize].arm == 0));
    for quantity in [&DELIVERED, &BUSY, &LATENCY_P99] {
        let of = recording.scalars_of(quantity);
        assert_eq!(of.count(), 6, "{}", quantity.name);
    }
    // A second attachment has the same nodes as the first.
    assert_eq!(recording.nodes.len(), 2);
}

/// Check that earlier results are kept when a run ends: by Ctrl-C, and by an instrument that fails.
#[test]
fn what_was_measured_is_kept() {
    if !has_root() {
        return;
    }
    let interrupted = run(
        Source::Packets(packets(vec![arm(Proto::Udp)], 50)),
        |diary, spec| Ok(mock(diary, spec, Some(Proto::Udp))),
        |done, cancel| cancel.store(done == 3, Ordering::Relaxed),
    );
    assert!(matches!(interrupted.result, Err(EngineError::Vm(VmError::Interrupted))));
    assert_eq!(interrupted.recording.blocks.len(), 3);
    assert!(!interrupted.recording.complete);
    gone(&interrupted.named);

    let broken = run(
        Source::Packets(packets(vec![arm(Proto::Udp)], 50)),
        |diary, spec| {
            let mut mock = mock(diary, spec, Some(Proto::Udp));
            mock.fails_after = 2;
            Ok(mock)
        },
        |_, _| {},
    );
    assert!(matches!(broken.result, Err(EngineError::Live(_))));
    assert_eq!(broken.saved.last(), Some(&2));
    gone(&broken.named);
}

fn traffic(command: &[&str], duration_ms: Option<u64>) -> TrafficPlan {
    TrafficPlan {
        topologies: Vec::new(),
        duration: duration_ms.map(Duration::from_millis),
        long: false,
        window: Some(Duration::from_millis(50)),
        command: command.iter().map(|w| w.to_string()).collect(),
        output_to_stderr: true,
        within: None,
        interface: None,
        namespace: None,
    }
}

/// Check that a host's traffic is watched in windows for as long as is asked, with an
/// arm for each kind of packets that was seen.
#[test]
fn windows_over_a_hosts_traffic() {
    let ran = run(
        Source::Traffic(traffic(&[], Some(200))),
        |diary, spec| Ok(mock(diary, spec, Some(Proto::Tcp))),
        |_, _| {},
    );
    ran.result.unwrap();
    let names: Vec<&str> = ran.recording.arms.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["tcp ipv4"]);
    assert_eq!(ran.recording.arms[0].link, Link::Any);
    assert_eq!(ran.recording.blocks.len(), 4);
    assert_eq!(ran.recording.environment[env::LAB], "host");
}

/// Check that a command is measured until it ends, that its exit is reported, that it is killed
/// when time is over, and that a run without traffic is reported as such.
#[test]
fn commands_are_watched() {
    let sees =
        |diary: &Rc<RefCell<Diary>>, spec: &TimingSpec| Ok(mock(diary, spec, Some(Proto::Tcp)));
    let ended = run(Source::Traffic(traffic(&["sh", "-c", "exit 5"], None)), sees, |_, _| {});
    let end = ended.result.unwrap();
    assert_eq!((end.command, end.stopped), (Some(Exit::Code(5)), false));
    assert_eq!(ended.recording.blocks.len(), 1);

    let killed = run(Source::Traffic(traffic(&["sleep", "60"], Some(120))), sees, |_, _| {});
    let end = killed.result.unwrap();
    assert_eq!((end.command, end.stopped), (None, true));

    let nothing = run(
        Source::Traffic(traffic(&["true"], None)),
        |diary, spec| Ok(mock(diary, spec, None)),
        |_, _| {},
    );
    assert!(matches!(
        nothing.result,
        Err(EngineError::NothingSeen { command: Some(Exit::Code(0)) })
    ));

    let missing = run(Source::Traffic(traffic(&["no-such-command"], None)), sees, |_, _| {});
    assert!(matches!(missing.result, Err(EngineError::Command { .. })));
}

/// Check that work of no packet belongs to the command, that all of it is one run, and that its windows are not runs.
#[test]
fn windows_are_no_runs() {
    let recorded = |window: Option<u64>, duration: Option<u64>| {
        let plan = TrafficPlan {
            window: window.map(Duration::from_millis),
            ..traffic(&["sleep", "0.12"], duration)
        };
        let mut ran = run_as(
            events::INSTRUMENT,
            Source::Traffic(plan),
            |diary, spec, _| Ok(mock(diary, spec, None)),
            |_, _| {},
        );
        ran.result.unwrap();
        let arm = ran.recording.arms.remove(0);
        (arm.name, arm.proto, ran.recording.blocks.len())
    };
    let name = || "sleep 0.12".to_string();
    assert_eq!(recorded(None, None), (name(), Proto::Command, 1));
    let (of, proto, blocks) = recorded(Some(50), None);
    assert_eq!((of, proto), (name(), Proto::Work));
    assert!(blocks > 1);
    assert_eq!(recorded(Some(60_000), Some(50)), (name(), Proto::Work, 1));
}

/// Check that no command is started when Ctrl-C came while the instrument was attached.
#[test]
fn interrupted_while_attaching() {
    let trace = concat!(env!("CARGO_TARGET_TMPDIR"), "/started-while-attaching");
    let _ = std::fs::remove_file(trace);
    let ran = run_until(
        Source::Traffic(traffic(&["touch", trace], None)),
        |diary, spec, cancel| {
            cancel.store(true, Ordering::Relaxed);
            Ok(mock(diary, spec, Some(Proto::Tcp)))
        },
        |_, _| {},
    );
    assert!(matches!(ran.result, Err(EngineError::Vm(VmError::Interrupted))));
    assert!(ran.recording.blocks.is_empty());
    assert!(!std::fs::exists(trace).unwrap());
}

/// Check that a run ends when an interface or a namespace disappears, and that its windows are
/// kept.
#[test]
fn what_is_watched_goes_away() {
    let name = || Some("never-there".to_string());
    let whole = traffic(&[], Some(10_000));
    for plan in [
        TrafficPlan { interface: name(), ..whole.clone() },
        TrafficPlan { namespace: name(), ..whole.clone() },
    ] {
        let ran = run(
            Source::Traffic(plan),
            |diary, spec| Ok(mock(diary, spec, Some(Proto::Udp))),
            |_, _| {},
        );
        assert!(matches!(ran.result, Err(EngineError::Gone(_))));
        assert_eq!(ran.saved.last(), Some(&1));
    }
}

/// Check that an instrument that can't be attached leaves nothing behind, and that its error is
/// reported unchanged.
#[test]
fn no_instrument() {
    if !has_root() {
        return;
    }
    let ran = run(
        Source::Packets(packets(vec![arm(Proto::Udp)], 2)),
        |_, _| {
            Err(LiveError::CannotRun {
                reason: "the kernel does not let it".into(),
                remedy: "use another".into(),
            })
        },
        |_, _| {},
    );
    assert!(matches!(ran.result, Err(EngineError::Live(LiveError::CannotRun { .. }))));
    assert!(ran.recording.blocks.is_empty());
    gone(&ran.named);
}
