//! `plumb`: where a packet's time goes in the Linux kernel, function by function.
mod commands;
fn main() {
    if std::process::id() == 1 {
        netplumb_engine::guest::be_init();
        return;
    }
    let a: Vec<String> = std::env::args().collect();
    if a[1] == "kernel" {
        let r = commands::kernel::run(commands::kernel::KernelCommand::Add { source: a[2].clone(), modules: None }, std::path::Path::new("/root/.cache/netplumb"));
        println!("{:?}", r); return;
    }
    let exp = netplumb_model::experiment::Experiment::parse(&std::fs::read_to_string(&a[1]).unwrap()).unwrap();
    let plan = netplumb_engine::Plan { arms: exp.arms(), packets: 200, warmup_packets: 200, blocks: 5 };
    let opt = netplumb_engine::Options { cache: "/root/.cache/netplumb".into(), init: netplumb_engine::run::OWN_BINARY.into(), quick: false, timeout: std::time::Duration::from_secs(60), layers: netplumb_kernel::layers::LayerRules::built_in(), cancel: Default::default() };
    let mut rec = Default::default();
    let t = std::time::Instant::now();
    let r = netplumb_engine::run(&plan, &opt, &mut rec, &mut |_| Ok(()), &|p| println!("{:?} {p:?}", t.elapsed()));
    println!("{:?} {:?} {:?}", t.elapsed(), rec.losses, rec.environment.get("vm.qemu_peak_bytes"));
    if let Err(e) = r { println!("{e}"); }
    for b in &rec.blocks { println!("{b:?}"); }
    use std::collections::BTreeMap;
    let mut m: BTreeMap<_, (u64,u64)> = BTreeMap::new();
    for c in &rec.costs { let b=&rec.blocks[c.block as usize]; let e = m.entry((b.arm, c.direction, c.context.to_string(), b.index)).or_default(); e.0 += c.self_insns; e.1 += c.calls; }
    for (k,v) in m { println!("{k:?} {v:?}"); }
    let mut f: BTreeMap<_, (u64,u64)> = BTreeMap::new();
    for c in &rec.costs { let b=&rec.blocks[c.block as usize]; if b.index==0 { let n = &rec.nodes[c.node as usize]; let e = f.entry((b.arm, c.direction, c.context.to_string(), rec.functions[n.function as usize].name.clone(), rec.functions[n.function as usize].layer.clone())).or_default(); e.0 += c.self_insns; e.1 += c.calls; }}
    let mut v: Vec<_> = f.into_iter().collect(); v.sort_by_key(|x| (x.0.0, x.0.1, std::cmp::Reverse(x.1.0)));
    for (k,x) in v { if k.1 != netplumb_model::class::Direction::Other { println!("F {k:?} {:.2} {:.2}", x.0 as f64/200., x.1 as f64/200.); } }
}
