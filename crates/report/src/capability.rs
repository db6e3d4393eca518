//! What this machine can measure, as text for a terminal.

use std::fmt::Write;

use netplumb_model::capability::{
    Availability, Capability, Doctor, Group, InstrumentAvailability, Lab, Machine,
};

/// The narrowest page that is laid out; a narrower terminal wraps by itself.
const NARROWEST: usize = 60;

/// Render the whole answer for a terminal, `columns` wide.
pub fn render(doctor: &Doctor, columns: usize) -> String {
    let mut page = Page { text: String::new(), columns: columns.max(NARROWEST) };
    page.wrapped("", "", &machine(&doctor.machine));
    for group in Group::ALL {
        let members: Vec<_> = doctor.capabilities.iter().filter(|c| c.group == group).collect();
        if !members.is_empty() {
            page.line("");
            page.line(group.title());
            page.group(&members);
        }
    }
    page.line("");
    page.line("in which lab");
    for (at, lab) in doctor.labs.iter().enumerate() {
        page.lab(lab, &doctor.labs[..at]);
    }
    page.line("");
    page.wrapped("", "  ", &summary(doctor));
    page.text
}

/// The machine in a sentence.
fn machine(machine: &Machine) -> String {
    let cpus = if machine.cpus == 1 { "CPU" } else { "CPUs" };
    let mut text = format!(
        "Linux {} on {}, {}; {} {cpus} ({}), {:.1} GiB",
        machine.kernel,
        machine.arch,
        machine.os,
        machine.cpus,
        machine.cpu,
        machine.memory_mib as f64 / 1024.0,
    );
    if machine.guest {
        text.push_str("; a virtual machine");
    }
    match machine.lockdown.as_deref() {
        Some("none") | None => (),
        Some(mode) => {
            let _ = write!(text, "; lockdown={mode}");
        }
    }
    let _ = write!(text, "; run as {}", machine.privilege);
    text
}

/// The summary: each lab with what works in it.
fn summary(doctor: &Doctor) -> String {
    let labs: Vec<String> = doctor
        .labs
        .iter()
        .map(|lab| {
            let working: Vec<&str> = lab
                .instruments
                .iter()
                .filter(|i| i.verdict.works())
                .map(|i| i.instrument.as_str())
                .collect();
            let what = if lab.works() { working.join(", ") } else { "nothing".to_owned() };
            format!("{}: {what}", lab.lab)
        })
        .collect();
    format!("labs: {}. Took {:.1} s.", labs.join("; "), doctor.took_ms / 1000.0)
}

fn mark(verdict: &Availability) -> &'static str {
    match verdict {
        Availability::Yes { .. } => "yes",
        Availability::Partly { .. } => "partly",
        Availability::No { .. } => "no",
    }
}

/// The reason and the remedy, where there are any.
fn advice(verdict: &Availability) -> Option<(&str, &str)> {
    match verdict {
        Availability::Yes { .. } => None,
        Availability::Partly { reason, remedy, .. } | Availability::No { reason, remedy } => {
            Some((reason, remedy))
        }
    }
}

fn headline(what: &str, verdict: &Availability) -> String {
    match verdict {
        Availability::Yes { detail } | Availability::Partly { detail, .. }
            if !detail.is_empty() =>
        {
            format!("{what}: {detail}")
        }
        _ => what.to_owned(),
    }
}

struct Page {
    text: String,
    columns: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A paragraph: `head` before its first line, `indent` before the others.
    fn wrapped(&mut self, head: &str, indent: &str, paragraph: &str) {
        let mut line = head.to_owned();
        let mut empty = true;
        for word in paragraph.split_whitespace() {
            let width = line.chars().count() + 1 + word.chars().count();
            if !empty && width > self.columns {
                self.line(line.trim_end());
                line = indent.to_owned();
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.line(line.trim_end());
    }

    fn group(&mut self, members: &[&Capability]) {
        let mut before = None;
        for member in members {
            let head = format!("  {:<7} ", mark(&member.verdict));
            self.wrapped(&head, "            ", &headline(&member.what, &member.verdict));
            let advice = advice(&member.verdict);
            self.advice("          ", advice, before);
            // A yes in between does not change the reason.
            before = advice.or(before);
        }
    }

    /// The reason and the remedy, unless they were just given.
    fn advice(&mut self, indent: &str, advice: Option<(&str, &str)>, before: Option<(&str, &str)>) {
        let Some((reason, remedy)) = advice else {
            return;
        };
        if advice == before {
            self.line(&format!("{indent}(as above)"));
            return;
        }
        let hanging = format!("{indent}      ");
        self.wrapped(&format!("{indent}why:  "), &hanging, reason);
        self.wrapped(&format!("{indent}do:   "), &hanging, remedy);
    }

    /// A lab. Advice that a lab `before` it has is not repeated.
    fn lab(&mut self, lab: &Lab, before: &[Lab]) {
        let head = format!("  {:<7} ", mark(&lab.verdict));
        self.wrapped(&head, "            ", &headline(&lab.lab, &lab.verdict));
        self.advice("          ", advice(&lab.verdict), None);
        let same =
            |other: &&Lab| !lab.instruments.is_empty() && other.instruments == lab.instruments;
        if let Some(other) = before.iter().find(same) {
            self.line(&format!("    every instrument as in {}", other.lab));
            return;
        }
        let mut given = None;
        for entry in &lab.instruments {
            self.instrument(entry, &mut given);
        }
    }

    fn instrument<'a>(
        &mut self,
        entry: &'a InstrumentAvailability,
        given: &mut Option<(&'a str, &'a str)>,
    ) {
        let head = format!("    {:<10} {:<7} ", entry.instrument, mark(&entry.verdict));
        let indent = " ".repeat(head.chars().count());
        let advice = advice(&entry.verdict);
        match &entry.verdict {
            Availability::Yes { detail } | Availability::Partly { detail, .. } => {
                self.wrapped(&head, &indent, detail);
                self.advice(&indent, advice, *given);
            }
            Availability::No { .. } if advice == *given => self.line(&format!("{head}as above")),
            Availability::No { reason, remedy } => {
                self.wrapped(&head, &indent, reason);
                self.wrapped(&format!("{indent}do:   "), &format!("{indent}      "), remedy);
            }
        }
        *given = advice.or(*given);
    }
}

#[cfg(test)]
mod tests;
