//! The kernel's drop reasons, by name: numbers differ between versions.

use std::collections::BTreeMap;

use libbpf_rs::btf::{Btf, types};

/// The prefix of all names.
const PREFIX: &str = "SKB_DROP_REASON_";
/// The bits of a reason's subsystem (include/net/dropreason.h).
const SUBSYSTEM_SHIFT: u32 = 16;

/// The names of `enum skb_drop_reason`, from 5.17 on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reasons(BTreeMap<u32, String>);

impl Reasons {
    /// The reasons of the running kernel.
    pub(crate) fn from_btf(btf: &Btf<'_>) -> Reasons {
        let Some(names) = btf.type_by_name::<types::Enum<'_>>("skb_drop_reason") else {
            return Reasons::default();
        };
        let name = |member: types::EnumMember<'_>| {
            let name = member.name?.to_string_lossy().into_owned();
            Some((u32::try_from(member.value).ok()?, name))
        };
        Reasons(names.iter().filter_map(name).collect())
    }

    /// The number of a full name.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let found = self.0.iter().find(|(_, is)| *is == name);
        found.map(|(number, _)| *number)
    }

    /// The name of a number.
    pub(crate) fn name(&self, reason: u32) -> String {
        match self.0.get(&reason) {
            Some(name) => name.strip_prefix(PREFIX).unwrap_or(name).to_string(),
            None if reason >> SUBSYSTEM_SHIFT != 0 => format!(
                "reason {} of subsystem {}",
                reason & ((1 << SUBSYSTEM_SHIFT) - 1),
                reason >> SUBSYSTEM_SHIFT
            ),
            None => format!("reason {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that reasons are named without the prefix, and unknown ones by their numbers.
    #[test]
    fn reasons_have_names() {
        let reasons = Reasons(BTreeMap::from([
            (6, "SKB_DROP_REASON_SOCKET_RCVBUFF".to_string()),
            (1, "SKB_CONSUMED".to_string()),
        ]));
        assert_eq!(reasons.name(6), "SOCKET_RCVBUFF");
        assert_eq!(reasons.name(1), "SKB_CONSUMED");
        assert_eq!(reasons.name(7), "reason 7");
        assert_eq!(reasons.name(3 << 16 | 2), "reason 2 of subsystem 3");
    }
}
