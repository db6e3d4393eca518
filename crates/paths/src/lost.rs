//! Frames that a device did not take from an XDP program: counted at tracepoints.

use std::collections::BTreeMap;

use libbpf_rs::{Link, Object, ObjectBuilder};
use netplumb_sys::errno;
use netplumb_sys::netns::Namespace;

use crate::Device;
use crate::bpf;
use crate::error::{Doing, PathError};
use crate::layout::ERRORS;

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/errors.bpf.o"));

/// Counts them, as far as the kernel tells.
#[derive(Debug)]
pub(crate) struct Lost {
    _links: Vec<Link>,
    object: Object,
    pub(crate) facts: BTreeMap<String, String>,
}

/// What was lost since it was set up.
#[derive(Debug, Default)]
pub(crate) struct LostFrames {
    pub(crate) by_cause: BTreeMap<String, u64>,
    pub(crate) by_cpu: BTreeMap<u32, u64>,
}

impl Lost {
    /// Count what is lost of what came in by a device.
    pub(crate) fn watch(namespace: &Namespace, ingress: &Device) -> Result<Lost, PathError> {
        let doing = || "watch what devices refuse".to_string();
        let inode = namespace.inode().doing(doing)?;
        let mut constants = ingress.index.to_ne_bytes().to_vec();
        constants.extend(inode.to_ne_bytes());
        let mut facts = BTreeMap::new();
        // Which tracepoints a kernel has differs.
        let btf = libbpf_rs::btf::Btf::from_vmlinux();
        let has = |tracepoint: &str| {
            btf.as_ref().is_ok_and(|btf| {
                let name = format!("btf_trace_{tracepoint}");
                btf.type_by_name::<libbpf_rs::btf::types::Typedef<'_>>(&name)
                    .is_some()
            })
        };
        let image = IMAGE.to_vec();
        let mut open = ObjectBuilder::default().open_memory(&image).doing(doing)?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            // Older kernels alone report to it.
            if !has(&name) && name != "xdp_redirect_map_err" {
                let why = "this kernel does not tell: what the device refuses is not counted";
                facts.insert(format!("path.tracepoint.{name}"), why.into());
            }
            program.set_autoload(has(&name));
        }
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata")
                && let Some(value) = map.initial_value_mut()
                && value.len() == constants.len()
            {
                value.copy_from_slice(&constants);
            }
        }
        let printer = libbpf_rs::set_print(None);
        let object = open.load();
        libbpf_rs::set_print(printer);
        let object = object.doing(doing)?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if program.autoload() {
                links.push(program.attach().doing(doing)?);
            }
        }
        Ok(Lost {
            _links: links,
            object,
            facts,
        })
    }

    pub(crate) fn frames(&self) -> Result<LostFrames, PathError> {
        let words = bpf::words(&self.object, ".bss.lost")?;
        let mut lost = LostFrames::default();
        for (what, numbers) in [
            ("the device did not take it", words.get(..ERRORS)),
            ("not redirected", words.get(ERRORS..2 * ERRORS)),
        ] {
            for (number, frames) in (0_i32..).zip(numbers.into_iter().flatten()) {
                if *frames > 0 {
                    let cause = format!("{what}: {}", errno::of_frames(number));
                    *lost.by_cause.entry(cause).or_default() += frames;
                }
            }
        }
        let cpus = words.get(2 * ERRORS..).unwrap_or_default();
        for (cpu, frames) in (0_u32..).zip(cpus) {
            if *frames > 0 {
                lost.by_cpu.insert(cpu, *frames);
            }
        }
        Ok(lost)
    }
}
