//! Symbols of guests that load modules for a command.
//!
//! The symbols of a saved state have none of theirs. They are megabytes, which the host reads as fast as
//! it happens to, and the guest's time depends on that: a guest that sent them before its command
//! would run it at another time in each run, and some functions measure time. So they are of a
//! guest of its own, which loads the same modules in the same state.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_lab::vm::bulk;
use netplumb_lab::vm::process::Extra;
use netplumb_model::message::Request;
use netplumb_model::recording::Arm;

use crate::error::EngineError;
use crate::kernel_lines::KernelLines;
use crate::origin::Origin;
use crate::receive;
use crate::run::Options;

/// Knobs that change the kernel, or where its modules are.
const OF_KERNEL: [&str; 5] = ["kernel", "cmdline", "mitigations", "module", "load"];

/// The tables of a run's arms, each read once.
#[derive(Debug, Default)]
pub(super) struct Tables {
    known: Vec<(Vec<String>, Arc<SymbolTable>)>,
    /// Source lines of the kernel, of all arms.
    pub(super) lines: KernelLines,
}

impl Tables {
    /// The symbols of a guest that starts from `origin` and has loaded `modules` from an archive.
    ///
    /// # Errors
    /// The guest fails, or its kernel lacks functions that identify paths.
    pub(super) fn for_arm(
        &mut self,
        arm: &Arm,
        origin: &Origin,
        (modules, archive): (&[String], &OwnedFd),
        options: &Options,
    ) -> Result<Arc<SymbolTable>, EngineError> {
        let level = |key: &&str| arm.level(key).unwrap_or_default().to_string();
        let mut key: Vec<String> = OF_KERNEL.iter().map(level).collect();
        key.push(arm.link.to_string());
        key.extend_from_slice(modules);
        if let Some((_, table)) = self.known.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(table));
        }
        let requests = [
            Request::Unpack { modules: modules.to_vec() },
            Request::ReadFile("/proc/kallsyms".into()),
        ];
        let archive = archive.try_clone().map_err(EngineError::host("hold the files"))?;
        let extra =
            Extra { args: bulk::qemu_args(archive.as_raw_fd()), fds: vec![archive], cpu: None };
        let mut guest = origin.start(&requests, extra, options)?;
        guest.go_on()?;
        guest.answers(options.timeout, |_| Ok(()))?;
        let text = guest.bytes(options.timeout)?;
        let table = Arc::new(receive::symbols(&text, origin.release())?);
        self.known.push((key, Arc::clone(&table)));
        Ok(table)
    }
}
