//! BPF programs of the user's: compiled objects, attached to devices of a topology.

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::recording::Arm;

/// Maximum size of an object.
pub const MAX_OBJECT_BYTES: u64 = 2 << 20;
/// After a device: the program is for what it sends.
const EGRESS: &str = ":egress";

words! {
    /// Where a program is attached.
    BpfHook, "hook of a BPF program",
    /// To a device's driver, or if that has no support for it, where its packets are received.
    Xdp = "xdp",
    /// As a filter of clsact.
    Tc = "tc",
}

/// A program of an arm, in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile<'a> {
    /// Where it is attached.
    pub hook: BpfHook,
    /// To which device.
    pub device: &'a str,
    /// Whether it is for what the device sends; only tc has such programs.
    pub egress: bool,
    /// The compiled object.
    pub path: &'a str,
    /// The section or the name of the program; none for the first one of the hook's type.
    pub program: Option<&'a str>,
}

/// The same with the object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpfProgram {
    /// Where it is attached.
    pub hook: BpfHook,
    /// To which device.
    pub device: String,
    /// Whether it is for what the device sends.
    pub egress: bool,
    /// The section or the name of the program.
    pub program: Option<String>,
    /// The compiled object (ELF).
    pub object: Vec<u8>,
}

/// The file of a level `FILE[:PROGRAM]`, and its program.
pub fn file_and_program(level: &str) -> (&str, Option<&str>) {
    match level.rsplit_once(':') {
        Some((file, program)) if !program.contains('/') || file.ends_with(".o") => {
            (file, Some(program))
        }
        _ => (level, None),
    }
}

impl<'a> ProgramFile<'a> {
    /// The programs of an arm; those with an empty level are none.
    pub fn all_of(arm: &'a Arm) -> Vec<ProgramFile<'a>> {
        let of = |hook: BpfHook| {
            let set = arm.table(hook.as_str()).filter(|(_, level)| !level.is_empty());
            set.map(move |(device, level)| {
                let (path, program) = file_and_program(level);
                let egress = device.strip_suffix(EGRESS);
                ProgramFile {
                    hook,
                    device: egress.unwrap_or(device),
                    egress: egress.is_some(),
                    path,
                    program,
                }
            })
        };
        BpfHook::ALL.iter().flat_map(|hook| of(*hook)).collect()
    }

    /// Check that its hook can be where it is to be.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.egress && self.hook == BpfHook::Xdp {
            true => {
                Err(format!("xdp.{}{EGRESS}: XDP sees what a device receives; use tc", self.device))
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    /// Check that a level is divided into its file and its section or name.
    #[test]
    fn levels() {
        for (level, wanted) in [
            ("a.o", ("a.o", None)),
            ("/x/a.o:xdp", ("/x/a.o", Some("xdp"))),
            ("a.o:xdp/dev", ("a.o", Some("xdp/dev"))),
            ("/x:y/a", ("/x:y/a", None)),
        ] {
            assert_eq!(file_and_program(level), wanted);
        }
    }

    /// Check that programs are of devices of the topology, that an empty level is none, and that arms are named after
    /// files.
    #[test]
    fn programs_of_arms() {
        let text = "name = \"x\"\n[vary]\nxdp.rx0 = [\"\", \"/x/drop.o:xdp\"]\ntc.\"tx0:egress\" = [\"/x/t.o\"]\n";
        let arms = Experiment::parse(text).unwrap().arms();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["xdp.rx0=none", "xdp.rx0=drop.o:xdp"]);
        let of = ProgramFile::all_of(&arms[1]);
        assert_eq!((of[0].device, of[0].path, of[0].program), ("rx0", "/x/drop.o", Some("xdp")));
        assert_eq!((of[1].device, of[1].egress, of[1].hook), ("tx0", true, BpfHook::Tc));
        assert_eq!(ProgramFile::all_of(&arms[0]).len(), 1);
        for (knobs, wanted) in [
            ("xdp.eth0 = \"a.o\"", "expected one of tx0, rx0"),
            ("xdp.\"rx0:egress\" = \"a.o\"", "use tc"),
        ] {
            let error =
                Experiment::parse(&format!("name = \"x\"\n[knobs]\n{knobs}\n")).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
