//! Frames that a device refused from an XDP program, counted at tracepoints.

use std::collections::BTreeMap;

use libbpf_rs::{Link, Object};
use netplumb_sys::bpf::{Opened, types};
use netplumb_sys::errno;
use netplumb_sys::netns::Namespace;
use netplumb_sys::plain::Plain;

use crate::Device;
use crate::bpf;
use crate::error::{Doing, PathError};
use crate::layout::errors::{self, Config};

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/errors.bpf.o"));

/// Counts such frames, as far as the kernel reports them.
#[derive(Debug)]
pub(crate) struct Lost {
    _links: Vec<Link>,
    object: Object,
    pub(crate) facts: BTreeMap<String, String>,
}

/// Frames lost since it was set up.
#[derive(Debug, Default)]
pub(crate) struct LostFrames {
    pub(crate) by_cause: BTreeMap<String, u64>,
    pub(crate) by_cpu: BTreeMap<u32, u64>,
}

impl Lost {
    /// Count lost frames that were received by a device.
    pub(crate) fn watch(namespace: &Namespace, ingress: &Device) -> Result<Lost, PathError> {
        let doing = || "watch what devices refuse".to_string();
        let inode = namespace.inode().doing(doing)?;
        let config = Config { ingress_index: ingress.index, namespace_inum: inode };
        let mut facts = BTreeMap::new();
        // Kernels have different tracepoints.
        let btf = types::of_kernel();
        let has =
            |tracepoint: &str| btf.as_ref().is_ok_and(|btf| types::has_tracepoint(btf, tracepoint));
        let mut open = Opened::new(IMAGE).doing(doing)?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            // Only older kernels use it.
            if !has(&name) && name != "xdp_redirect_map_err" {
                let why = "no such tracepoint in this kernel: frames that the device refuses are not counted";
                facts.insert(format!("path.tracepoint.{name}"), why.into());
            }
            program.set_autoload(has(&name));
        }
        open.set_constants(config.bytes()).doing(doing)?;
        let object = open.load().doing(doing)?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if program.autoload() {
                links.push(program.attach().doing(doing)?);
            }
        }
        Ok(Lost { _links: links, object, facts })
    }

    pub(crate) fn frames(&self) -> Result<LostFrames, PathError> {
        let counted: Vec<errors::Lost> = bpf::variables(&self.object, ".bss.lost")?;
        let mut lost = LostFrames::default();
        let Some(counted) = counted.first() else {
            return Ok(lost);
        };
        for (what, numbers) in [
            ("the device did not take it", &counted.transmit),
            ("not redirected", &counted.redirect),
        ] {
            for (number, frames) in (0_i32..).zip(numbers) {
                if *frames > 0 {
                    let cause = format!("{what}: {}", errno::of_frames(number));
                    *lost.by_cause.entry(cause).or_default() += frames;
                }
            }
        }
        for (cpu, frames) in (0_u32..).zip(&counted.cpus) {
            if *frames > 0 {
                lost.by_cpu.insert(cpu, *frames);
            }
        }
        Ok(lost)
    }
}
