//! A program at tc ingress.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use libbpf_rs::{TC_INGRESS, TcHook, TcHookBuilder};
use netplumb_knobs::{PRESENT, Setting};
use netplumb_model::bench::Handled;
use netplumb_sys::plain::Plain;

use crate::bpf::{Attached, Load, Program};
use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::layout::Config;
use crate::{Device, Site, Standing, Way};

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o"));

/// Drops by a program at ingress.
#[derive(Debug)]
pub(crate) struct Tc {
    // Dropped in this order.
    link: Option<Attached>,
    program: Program,
    changes: Changes,
    stamped: bool,
}

impl Tc {
    pub(crate) fn set_up(way: &Way, site: &Site) -> Result<Tc, PathError> {
        let config = Config::new(site, way.stamped);
        let program =
            Load { image: IMAGE, program: "tc_drop", constants: config.bytes(), ..Load::default() }
                .program()?;
        let mut changes = Changes::at(site)?;
        changes.gro(&site.ingress)?;
        let index = site.ingress.index;
        let link = match Attached::attach(program.fd()?, &changes.namespace, index, None) {
            Ok(link) => Some(link),
            // The hook does not exist before 6.6.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) => {
                filter(program.fd()?, &mut changes, &site.ingress)?;
                None
            }
            Err(error) => {
                return Err(error).doing(|| format!("attach a program to {}", site.ingress.name));
            }
        };
        Ok(Tc { link, program, changes, stamped: way.stamped })
    }
}

fn hook(program: BorrowedFd<'_>, device: u32) -> TcHook {
    let mut builder = TcHookBuilder::new(program);
    builder.ifindex(device as i32).replace(true).handle(1).priority(1);
    builder.hook(TC_INGRESS)
}

/// The qdisc clsact, as a setting.
pub(crate) fn clsact(device: &Device) -> Setting {
    Setting::Clsact { nic: device.nic() }
}

/// A filter of clsact, for kernels before 6.6. Removed with the qdisc.
fn filter(
    program: BorrowedFd<'_>,
    changes: &mut Changes,
    device: &Device,
) -> Result<(), PathError> {
    let other = |error: libbpf_rs::Error| io::Error::other(error.to_string());
    if !changes.set(clsact(device), PRESENT)? {
        return Err(PathError::cannot(
            format!("{} already has a clsact qdisc with other filters", device.name),
            "remove it (`tc qdisc del dev DEVICE clsact`), use another device, or Linux 6.6, where tcx leaves other filters alone",
        ));
    }
    let mut ours = hook(program, device.index);
    let attached = changes.namespace.inside(|| ours.attach().map(drop).map_err(other));
    attached.doing(|| "attach a clsact filter (does the kernel have cls_bpf?)".into())
}

impl Standing for Tc {
    fn handled(&mut self) -> Result<Handled, PathError> {
        self.program.handled()
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        let by = match self.link {
            Some(_) => "tcx, ingress",
            None => "a clsact filter at ingress: this kernel has no tcx",
        };
        facts.insert("path.attached".into(), by.into());
        if let Some(id) = self.program.id() {
            facts.insert("path.program_ids".into(), id.to_string());
        }
        if self.stamped {
            let unstamped = self.program.unstamped();
            facts.insert("path.unstamped".into(), unstamped.to_string());
        }
        facts
    }
}
