//! Why a setting is not there, or not accepted, and what to do about it.

use std::io::{self, ErrorKind};

use super::Setting;
use crate::disk::REQUESTS;
use crate::error::KnobError;

impl Setting {
    /// The error that a disk or a device has no such setting.
    pub(super) fn missing(&self, error: &io::Error) -> Option<KnobError> {
        let shown = self.shown_by();
        let has_none = error.kind() == ErrorKind::Unsupported
            || error.raw_os_error() == Some(libc::EOPNOTSUPP);
        match self {
            _ if has_none && shown.is_some() => Some(KnobError::Missing {
                what: self.whose(),
                why: match error.raw_os_error() {
                    Some(_) => format!(
                        "its driver does not have it; `{}` shows what it has",
                        shown.unwrap_or_default()
                    ),
                    None => error.to_string(),
                },
            }),
            Setting::BlockQueue { disk, which } if error.kind() == ErrorKind::NotFound => {
                Some(KnobError::Missing { what: self.whose(), why: disk.why_not(which) })
            }
            _ => None,
        }
    }

    /// The command that shows what a device has of such settings.
    fn shown_by(&self) -> Option<String> {
        let letter = match self {
            Setting::NamedFeature { .. } => "k",
            Setting::Coalescing { .. } => "c",
            Setting::Ring { .. } => "g",
            Setting::Channel { .. } => "l",
            Setting::Steering { nic, queue, .. } => {
                return Some(format!("ls /sys/class/net/{}/queues/{queue}", nic.name));
            }
            Setting::Polling { nic, .. } => return Some(format!("ls /sys/class/net/{}", nic.name)),
            _ => return None,
        };
        Some(format!("ethtool -{letter} {}", self.nic()?.name))
    }

    /// The error of a value that a device's driver refuses.
    fn refused(&self, value: &str, error: &io::Error) -> Option<KnobError> {
        if let Some(missing) = self.missing(error) {
            return Some(missing);
        }
        let why = match self {
            Setting::Affinity { .. } => format!(
                "{error}; the driver keeps it where it is, or there is no such CPU (`cat /sys/devices/system/cpu/online`)"
            ),
            _ => format!("{error}; `{}` shows what there is", self.shown_by()?),
        };
        Some(KnobError::NotAccepted { what: self.whose(), asked: value.into(), why })
    }

    /// The error of a value that a disk's queue does not accept.
    pub(super) fn not_accepted(&self, value: &str, error: &io::Error) -> Option<KnobError> {
        let Setting::BlockQueue { disk, which } = self else {
            return self.refused(value, error);
        };
        if error.raw_os_error() != Some(libc::EINVAL) {
            return self.missing(error);
        }
        let why = match disk.choices(which) {
            Some(words) => format!("expected one of {words}"),
            None if which == REQUESTS => {
                "the kernel does not accept it for this disk; try less, or with another scheduler"
                    .into()
            }
            None => "the kernel does not accept it for this disk".into(),
        };
        Some(KnobError::NotAccepted { what: self.whose(), asked: value.into(), why })
    }
}
