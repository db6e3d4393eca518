//! The plugin itself, and QEMU's arguments for it.

/// The shared object, compiled from plugins/qemu/exact.c.
pub static PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/exact.so"));

/// The plugin's option that has arguments of all calls read, where symbols are not known yet.
pub const ALL_CALLS: &str = "calls=all";

/// QEMU's arguments for the plugin in descriptor `plugin`, writing its stream to
/// descriptor `stream`, with these options ([`super::Tracing::options`]).
pub fn qemu_args(plugin: i32, stream: i32, options: &[String]) -> Vec<String> {
    let mut file = format!("file=/proc/self/fd/{plugin},fd={stream}");
    for option in options {
        file.push(',');
        file.push_str(option);
    }
    vec!["-plugin".into(), file]
}

/// If QEMU ended because it would not have the plugin: why, and what to do.
pub fn describe_refusal(stderr: &[String]) -> Option<String> {
    let said = |what: &str| stderr.iter().any(|line| line.contains(what));
    // plugins/loader.c of QEMU 4.2 to 10: "requires API version 1, but this QEMU
    // supports only a minimum version of 2", and for none at all, of -plugin
    // itself (softmmu/vl.c).
    if said("plugin") && (said("API version") || said("requires")) {
        return Some(
            "this QEMU has another plugin interface than the one (version 1, QEMU 4.2 to 8.2) \
             that this program was built for: use Debian 12's qemu-system-x86 (7.2), or name \
             another with $PLUMB_QEMU"
                .into(),
        );
    }
    if said("-plugin: invalid option") || said("TCG plugin support not") {
        return Some(
            "this QEMU was built without TCG plugins: use a distribution's \
             qemu-system-x86, or name one with $PLUMB_QEMU"
                .into(),
        );
    }
    if said("Could not load plugin") || said("could not load plugin") {
        return Some("this QEMU could not load the plugin".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that QEMU's ways of saying no are told apart, and that other
    /// failures are not taken for one.
    #[test]
    fn refusals() {
        let told = |line: &str| describe_refusal(&[line.to_string()]);
        let version = told(
            "Could not load plugin /proc/self/fd/9: plugin requires API version 1, but this \
             QEMU supports only a minimum version of 2",
        );
        assert!(version.unwrap().contains("version 1"));
        let none = told("qemu-system-x86_64: -plugin: invalid option");
        assert!(none.unwrap().contains("without TCG plugins"));
        assert_eq!(told("qemu-system-x86_64: could not load kernel"), None);
    }

    /// Check that the plugin is a shared object that says its version.
    #[test]
    fn plugin_is_carried() {
        assert_eq!(&PLUGIN[..4], b"\x7fELF");
        let symbol = b"qemu_plugin_version";
        assert!(PLUGIN.windows(symbol.len()).any(|w| w == symbol));
    }
}
