//! Texts without names and addresses.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::{Redaction, Secret};

/// Directories that say nothing of a user: their files are the same everywhere.
const SYSTEM: [&str; 11] = [
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/lib/",
    "/bin/",
    "/sbin/",
    "/lib/",
    "/lib64/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/boot/",
];
/// Directories of users' homes.
const HOMES: [&str; 2] = ["/home/", "/Users/"];
/// Letters that end a word.
const ENDS: &str = "\"'`(),;=<>[]{}|";
/// Stands for what was cut off.
const CUT: &str = "…";

/// Replaces words, always the same ones in the same way.
#[derive(Debug)]
pub(super) struct Words {
    redaction: Redaction,
    /// Commands, and what stands for them.
    commands: BTreeMap<String, String>,
    /// Directories that were cut off: each has a number, so that files of two stay two.
    folders: RefCell<BTreeMap<String, usize>>,
}

impl Words {
    pub(super) fn new(redaction: Redaction) -> Words {
        Words { redaction, commands: BTreeMap::new(), folders: RefCell::default() }
    }

    pub(super) fn takes(&self, secret: Secret) -> bool {
        self.redaction.takes(secret)
    }

    /// Learn users from home directories.
    pub(super) fn learn(&mut self, text: &str) {
        for home in HOMES {
            for (at, _) in text.match_indices(home) {
                let rest = &text[at + home.len()..];
                let name = rest.split(|c: char| c == '/' || c.is_whitespace() || ENDS.contains(c));
                let name = name.map(|name| name.trim_end_matches([':', '.'])).next();
                self.redaction.users.extend(name.filter(|name| !name.is_empty()).map(String::from));
            }
        }
    }

    pub(super) fn learn_hosts(&mut self, hosts: Option<&str>) {
        self.redaction.hosts.extend(hosts.filter(|host| !host.is_empty()).map(String::from));
    }

    /// Learn a command: its program stands for it, numbered if another command has that already.
    pub(super) fn learn_command(&mut self, command: &str) {
        let mut words = command.split_whitespace();
        let (Some(program), true) = (words.next(), self.takes(Secret::Commands)) else {
            return;
        };
        let program = self.word(program);
        let program = program.rsplit('/').next().unwrap_or(&program).to_string();
        if words.next().is_none() {
            return;
        }
        let short = format!("{program} {CUT}");
        let taken = self.commands.values().filter(|known| known.starts_with(&short)).count();
        let short = if taken > 0 { format!("{short} {}", taken + 1) } else { short };
        self.commands.entry(command.into()).or_insert(short);
    }

    /// A text without what is taken out.
    pub(super) fn redacted(&self, text: &str) -> String {
        if let Some(short) = self.commands.get(text) {
            return short.clone();
        }
        let mut text = text.to_string();
        // Names of arms are made of settings: `command=wget -q http://...`.
        for (command, short) in self.commands.iter().rev() {
            if text.contains(command.as_str()) {
                text = text.replace(command.as_str(), short);
            }
        }
        let is_end = |c: char| c.is_whitespace() || ENDS.contains(c);
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(is_end) {
            out.push_str(&self.word(&rest[..at]));
            let end = rest[at..].chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[at..at + end]);
            rest = &rest[at + end..];
        }
        out.push_str(&self.word(rest));
        out
    }

    fn word(&self, word: &str) -> String {
        if word.is_empty() {
            return String::new();
        }
        if word.contains("://") {
            return if self.takes(Secret::Addresses) { "(address)".into() } else { word.into() };
        }
        if let Some(at) = word.find(":/") {
            // A file in front of something, or behind: `uprobe:/home/...`, `/home/...:main`.
            return format!("{}:{}", self.word(&word[..at]), self.word(&word[at + 1..]));
        }
        if word.starts_with('/') || word.starts_with('~') {
            let end = word.find(':').unwrap_or(word.len());
            return format!("{}{}", self.path(&word[..end]), &word[end..]);
        }
        if self.takes(Secret::Addresses) && (is_address(word) || self.is_mail(word)) {
            return "(address)".into();
        }
        if let Some((user, host)) = word.split_once('@') {
            return format!("{}@{}", self.name(user), self.name(host));
        }
        self.name(word)
    }

    /// A path: its last part, unless it is of the system.
    fn path(&self, path: &str) -> String {
        let is_system = SYSTEM.iter().any(|folder| path.starts_with(folder));
        let depth = path.trim_end_matches('/').matches('/').count();
        if self.takes(Secret::Paths) && !is_system && depth > 1 {
            let (folder, last) = path.trim_end_matches('/').rsplit_once('/').unwrap_or_default();
            let mut folders = self.folders.borrow_mut();
            let next = folders.len() + 1;
            return match *folders.entry(folder.into()).or_insert(next) {
                1 => format!("{CUT}/{}", self.name(last)),
                number => format!("{CUT}{number}/{}", self.name(last)),
            };
        }
        let parts: Vec<String> = path.split('/').map(|part| self.name(part)).collect();
        parts.join("/")
    }

    /// A name alone; of a machine, with its domain or without.
    fn name(&self, name: &str) -> String {
        let Redaction { hosts, users, .. } = &self.redaction;
        let machine = name.split('.').next().unwrap_or(name);
        if self.takes(Secret::Hosts) && (hosts.contains(name) || hosts.contains(machine)) {
            return "(host)".into();
        }
        match self.takes(Secret::Users) && users.contains(name) {
            true => "(user)".into(),
            false => name.into(),
        }
    }

    /// An address of mail, or a user of a machine. Symbols have versions behind one, too.
    fn is_mail(&self, word: &str) -> bool {
        let Some((user, host)) = word.split_once('@') else {
            return false;
        };
        let known = self.redaction.users.contains(user) || self.redaction.hosts.contains(host);
        let is_host = host.contains('.') && host.bytes().any(|b| b.is_ascii_lowercase());
        !user.is_empty() && (known || is_host) && !host.starts_with('@')
    }
}

/// An address of IPv4 or IPv6, with a port or a prefix or neither; or one of Ethernet.
fn is_address(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ':']);
    let alone = word.split(['/', '%']).next().unwrap_or(word);
    let is_mac = || {
        let parts: Vec<&str> = word.split([':', '-']).collect();
        let is_byte = |p: &&str| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit());
        parts.len() == 6 && parts.iter().all(is_byte)
    };
    // `::` is an operator, too.
    let is_ip = |text: &str| text.len() > 2 && text.parse::<IpAddr>().is_ok();
    is_ip(alone) || word.parse::<SocketAddr>().is_ok() || is_mac()
}
