//! Arms and blocks of a bench as JSON has them. docs/reference/json.md describes it for users.

use std::collections::BTreeMap;

use netplumb_model::bench::{BlockRates, CpuUse, Hop};
use netplumb_model::recording::{Arm, Recording};
use netplumb_model::span::Times;
use netplumb_stats::welch::Mean;
use serde::Serialize;

use super::{ArmRates, ArmRow};

#[derive(Serialize)]
pub(super) struct ArmOut<'a> {
    #[serde(flatten)]
    arm: &'a Arm,
    /// Why it has no blocks.
    failed: Option<&'a str>,
    diagnosis: Option<&'a str>,
    valid_blocks: usize,
    /// Causes, each with how many blocks.
    invalid_blocks: BTreeMap<String, usize>,
    handled_pps: Option<MeanOut>,
    offered_pps: Option<MeanOut>,
    /// Busy time of all CPUs per packet.
    cpu_ns_per_packet: Option<f64>,
    /// 1 / rate.
    wall_ns_per_packet: Option<f64>,
    generator_ns_per_packet: Option<f64>,
    /// None where it is not known.
    generator_bound: Option<bool>,
    batch_frames: Option<f64>,
    useful_polls: Option<f64>,
    cpus: Vec<CpuUse>,
    hops: Vec<Hop>,
    /// By number.
    queues: BTreeMap<u32, u64>,
    latency: Option<Times>,
}

#[derive(Serialize)]
struct MeanOut {
    mean: f64,
    low: Option<f64>,
    high: Option<f64>,
    blocks: usize,
}

#[derive(Serialize)]
pub(super) struct BlockOut {
    arm: u32,
    index: u32,
    /// Why it does not count; none if it does.
    invalid: Option<String>,
    window_ns: u64,
    offered_pps: f64,
    sent_pps: f64,
    handled_pps: f64,
    handled_bytes_per_s: Option<f64>,
    /// By CPU.
    handled_packets: BTreeMap<u32, u64>,
    /// Those that the kernel does not count by CPU.
    handled_packets_cpu_unknown: u64,
    loss: f64,
    limit_pps: Option<f64>,
    cpus: Vec<CpuUse>,
    hops: Vec<Hop>,
    queues: BTreeMap<u32, u64>,
}

/// Every arm.
pub(super) fn arms<'r>(arms: &[ArmRow<'r>]) -> Vec<ArmOut<'r>> {
    arms.iter().map(|arm| arm_out(arm)).collect()
}

/// Every block in which rates were measured.
pub(super) fn blocks(recording: &Recording) -> Vec<BlockOut> {
    let blocks = super::blocks_of(recording);
    blocks
        .map(|(block, m)| BlockOut {
            arm: block.arm,
            index: block.index,
            invalid: m.invalid(),
            window_ns: m.window_ns,
            offered_pps: m.offered_pps(),
            sent_pps: m.sent_pps(),
            handled_pps: m.handled_pps(),
            handled_bytes_per_s: m.handled_bytes_per_s(),
            loss: m.loss(),
            limit_pps: m.limit_pps(),
            handled_packets_cpu_unknown: m.handled.cpu_unknown,
            handled_packets: m.handled.packets,
            cpus: m.cpus,
            hops: m.hops,
            queues: m.queues,
        })
        .collect()
}

fn mean_out(mean: Option<Mean>) -> Option<MeanOut> {
    mean.map(|m| MeanOut { mean: m.value, low: m.low, high: m.high, blocks: m.of })
}

fn arm_out<'a>(arm: &ArmRates<'a>) -> ArmOut<'a> {
    ArmOut {
        arm: arm.arm,
        failed: arm.failed,
        diagnosis: arm.diagnosis,
        valid_blocks: arm.valid.len(),
        invalid_blocks: arm.invalid.clone(),
        handled_pps: mean_out(arm.handled_pps()),
        offered_pps: mean_out(arm.mean(BlockRates::offered_pps)),
        cpu_ns_per_packet: arm.cpu_ns_per_packet(),
        wall_ns_per_packet: arm.wall_ns_per_packet(),
        generator_ns_per_packet: arm.generator_ns(),
        generator_bound: arm.generator_bound(),
        batch_frames: arm.batch(),
        useful_polls: arm.useful_polls(),
        cpus: arm.cpus(),
        hops: arm.hops(),
        queues: arm.queues(),
        latency: arm.latency(),
    }
}
