//! The effects of an experiment on this machine: outside of guests and of its own network namespaces.
//!
//! An experiment file may be someone else's, so that `plumb run` lists this and asks. Settings of interfaces
//! and disks aren't part of it: they are agreed to by name ([`super::MachinePlan`], [`super::Nics`]).

use std::collections::BTreeSet;

use super::{Experiment, Kind, Lab, MachinePlan};

impl Experiment {
    /// Whether arms of a command on this machine set something of its interfaces or disks.
    pub fn names_objects(&self) -> bool {
        let has = |plan: &MachinePlan| plan.nic.is_some() || plan.disk.is_some();
        let is_here = (self.lab, self.workload.kind) == (Lab::Host, Kind::Work);
        is_here && self.arms().iter().map(MachinePlan::from_arm).any(|plan| has(&plan))
    }

    /// Its commands, in the order in which they run, and its sysctls on this machine, one line each.
    pub fn outside(&self) -> Vec<String> {
        let run = |words: &[String]| format!("run `{}`", words.join(" "));
        let mut lines: Vec<String> = self.build.commands.iter().map(|words| run(words)).collect();
        if self.lab == Lab::Vm || self.workload.kind == Kind::Frames {
            return lines;
        }
        let arms = self.arms();
        if !self.workload.command.is_empty() {
            lines.push(run(&self.workload.command));
        }
        lines.extend(
            (arms.iter()).filter_map(|arm| Some(format!("run `{}`", arm.knobs.get("command")?))),
        );
        if self.lab == Lab::Host {
            let sysctls = arms.iter().flat_map(|arm| arm.table("sysctl"));
            lines.extend(
                sysctls.map(|(name, value)| {
                    format!("set sysctl {name} to {value} while a command runs")
                }),
            );
        }
        let mut listed = BTreeSet::new();
        lines.retain(|line| listed.insert(line.clone()));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Experiment, String> {
        Experiment::parse(&format!("name = \"x\"\n{text}")).map_err(|error| error.to_string())
    }

    const COUNTS: &str =
        "lab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\n";

    /// Check that every command that runs on this machine is listed, and every sysctl that is set there, once;
    /// and nothing that happens in guests or namespaces.
    #[test]
    fn what_is_outside() {
        let of = |text: &str| parse(text).unwrap().outside();
        let none: [&str; 0] = [];
        assert_eq!(of(""), none);
        assert_eq!(of("lab = \"netns\"\n[knobs]\nsysctl.\"net.ipv4.tcp_ecn\" = \"1\"\n"), none);
        assert_eq!(of("[workload]\nkind = \"command\"\ncommand = [\"id\"]\n"), none);
        assert_eq!(of("lab = \"netns\"\n[workload]\nkind = \"frames\"\n"), none);
        assert_eq!(
            of(
                "[build]\ncommands = [[\"make\", \"-s\"]]\n[workload]\nkind = \"command\"\ncommand = [\"id\"]\n"
            ),
            ["run `make -s`"]
        );
        assert_eq!(
            of("lab = \"netns\"\n[workload]\nkind = \"command\"\ncommand = [\"id\", \"-u\"]\n"),
            ["run `id -u`"]
        );
        assert_eq!(of(&format!("{COUNTS}command = [\"id\"]\n")), ["run `id`"]);
        assert_eq!(
            of(&format!(
                "{COUNTS}command = [\"id\"]\n[knobs.sysctl]\n\"vm.swappiness\" = \"1\"\n\
                 [[arm]]\nname = \"a\"\n[[arm]]\nname = \"b\"\nknobs.command = \"true\"\n"
            )),
            ["run `id`", "run `true`", "set sysctl vm.swappiness to 1 while a command runs"]
        );
    }

    /// Check that sysctls which would be this machine's are refused by their names, however they are written.
    #[test]
    fn sysctls_of_this_machine() {
        let host = |name: &str| {
            parse(&format!("{COUNTS}command = [\"id\"]\n[knobs.sysctl]\n\"{name}\" = \"1\"\n"))
        };
        let netns =
            |name: &str| parse(&format!("lab = \"netns\"\n[vary]\nsysctl.\"{name}\" = [\"1\"]\n"));
        for name in ["net.core.busy_poll", "vm.swappiness"] {
            assert!(host(name).is_ok(), "{name}");
        }
        assert!(netns("net.ipv4.tcp_ecn").is_ok());
        for name in [
            "kernel.core_pattern",
            "kernel/core_pattern",
            "fs.suid_dumpable",
            "dev.x",
            "user.x",
            "netx.y",
        ] {
            assert!(host(name).unwrap_err().contains("line 8:"), "{name}");
            for error in [host(name), netns(name)].map(Result::unwrap_err) {
                assert!(error.contains(name) && error.contains("net."), "{error}");
            }
            let guest = parse(&format!("[knobs.sysctl]\n\"{name}\" = \"1\"\n"));
            assert!(guest.is_ok(), "{name}");
        }
        assert!(netns("vm.swappiness").is_err());
    }
}
