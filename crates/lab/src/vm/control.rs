//! Saving, loading and controlling a guest by QEMU's control channel (QMP).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use netplumb_sys::memory::memfd;
use serde_json::{Value, json};

use super::deadline::Deadline;
use super::error::{Doing, VmError};
use super::process::{Guest, POLL, rewound};
use super::qmp::QmpError;
use super::saved::Saved;

/// The first QEMU that can save to files.
const FILES_SINCE: (u64, u64) = (8, 2);

impl Guest {
    /// Save the devices of a paused guest, whose memory is in a file.
    ///
    /// # Errors
    /// QEMU refused.
    pub fn save_devices(&mut self) -> Result<Vec<u8>, VmError> {
        let deadline = &self.deadline(self.limit);
        self.leave_memory_out(deadline)?;
        let file = memfd("netplumb-devices", b"").doing("hold the devices")?;
        let uri = self.pass_to(file.as_fd(), deadline)?;
        self.control("migrate", json!({ "uri": uri }), deadline)?;
        self.migrated("saved", deadline)?;
        let mut bytes = Vec::new();
        rewound(file)
            .and_then(|fd| File::from(fd).read_to_end(&mut bytes))
            .doing("read the devices")?;
        Ok(bytes)
    }

    /// Pass a file to save to; returns QEMU's name of it. Since 9.1 `fd:` is deprecated for files, which
    /// 11.1 refuses.
    fn pass_to(&mut self, file: BorrowedFd<'_>, deadline: &Deadline) -> Result<String, VmError> {
        const NAME: &str = "devices";
        let Some(control) = &mut self.control else {
            return Err(VmError::Control("the guest has no control channel".into()));
        };
        let passed = match control.is_since(FILES_SINCE) {
            true => {
                let added =
                    control.execute_with_fd("add-fd", json!({}), file, deadline, &self.cancel);
                added.map(|added| format!("file:/proc/self/fd/{}", added["fd"]))
            }
            false => {
                let named = json!({ "fdname": NAME });
                let got = control.execute_with_fd("getfd", named, file, deadline, &self.cancel);
                got.map(|_| format!("fd:{NAME}"))
            }
        };
        passed.map_err(|e| self.control_failed(e))
    }

    /// Features of its CPU's model that this QEMU can't emulate, by its names.
    ///
    /// # Errors
    /// QEMU did not answer.
    pub fn lacking_features(&mut self) -> Result<Vec<String>, VmError> {
        let deadline = &self.deadline(self.limit);
        let cpus = self.control("query-cpus-fast", json!({}), deadline)?;
        let Some(path) = cpus.pointer("/0/qom-path").cloned() else {
            return Ok(Vec::new());
        };
        let (list, property) = ("qom-list", "unavailable-features");
        let properties = self.control(list, json!({ "path": path }), deadline)?;
        // arm64 CPUs have no list: their models have fixed features.
        let named = |p: &Value| p.get("name").and_then(Value::as_str) == Some(property);
        if !properties.as_array().is_some_and(|all| all.iter().any(named)) {
            return Ok(Vec::new());
        }
        let of_cpu = json!({ "path": path, "property": property });
        let lacking = self.control("qom-get", of_cpu, deadline)?;
        let names = lacking.as_array().into_iter().flatten();
        Ok(names.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    pub(super) fn load(
        &mut self,
        saved: &Saved,
        devices: i32,
        deadline: &Deadline,
    ) -> Result<(), VmError> {
        self.leave_memory_out(deadline)?;
        // Its NICs would announce themselves to each other, at times that depend on the host.
        let silent = json!({ "announce-rounds": 0 });
        self.control("migrate-set-parameters", silent, deadline)?;
        let control = self.control.as_ref();
        let uri = match control.is_some_and(|control| control.is_since(FILES_SINCE)) {
            true => format!("file:/proc/self/fd/{devices}"),
            false => format!("fd:{devices}"),
        };
        self.control("migrate-incoming", json!({ "uri": uri }), deadline)?;
        self.migrated("loaded", deadline)?;
        self.agent = Some(saved.port.min(self.ports.len() - 1));
        (self.resting, self.rested) = (true, true);
        Ok(())
    }

    /// Exclude memory in a file from the stream.
    fn leave_memory_out(&mut self, deadline: &Deadline) -> Result<(), VmError> {
        let capability = json!({ "capability": "x-ignore-shared", "state": true });
        self.control("migrate-set-capabilities", json!({ "capabilities": [capability] }), deadline)
            .map(drop)
    }

    fn migrated(&mut self, done: &'static str, deadline: &Deadline) -> Result<(), VmError> {
        loop {
            let answer = self.control("query-migrate", json!({}), deadline)?;
            match answer.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed") => {
                    let why = answer
                        .get("error-desc")
                        .and_then(Value::as_str)
                        .unwrap_or("it gives no reason");
                    return Err(VmError::Control(format!(
                        "the guest's state could not be {done}: {why}"
                    )));
                }
                _ => thread::sleep(POLL / 50),
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(VmError::Interrupted);
            }
            if deadline.is_over() {
                return Err(VmError::NoAnswer {
                    what: format!("finish with the guest's state {done}"),
                    seconds: self.limit.as_secs(),
                });
            }
        }
    }

    pub(super) fn control(
        &mut self,
        command: &str,
        arguments: Value,
        deadline: &Deadline,
    ) -> Result<Value, VmError> {
        let Some(control) = &mut self.control else {
            return Ok(Value::Null);
        };
        control
            .execute(command, arguments, deadline, &self.cancel)
            .map_err(|e| self.control_failed(e))
    }

    /// The error of a failed command: QEMU's exit, if that is the cause.
    pub(super) fn control_failed(&mut self, error: QmpError) -> VmError {
        match error {
            QmpError::Interrupted => return VmError::Interrupted,
            QmpError::Timeout(what) => {
                let seconds = self.limit.as_secs();
                return match self.is_stopped() {
                    true => VmError::QemuStopped { what, seconds },
                    false => VmError::NoAnswer { what, seconds },
                };
            }
            QmpError::Io(_) | QmpError::Refused { .. } => {}
        }
        if let QmpError::Io(_) = error {
            let deadline = Instant::now() + 20 * POLL;
            while Instant::now() < deadline {
                if let Ok(Some(status)) = self.child.try_wait() {
                    return self.ended(status);
                }
                thread::sleep(POLL / 10);
            }
        }
        VmError::Control(error.to_string())
    }
}
