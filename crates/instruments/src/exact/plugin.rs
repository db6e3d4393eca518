//! The plugin itself, and QEMU's arguments for it.

/// The shared object, compiled from plugins/qemu/exact.c.
pub static PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/exact.so"));

/// The plugin's option to read arguments at all calls, for when symbols are not known yet.
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

/// If QEMU refused the plugin: why, and what to do.
pub fn describe_refusal(stderr: &[String]) -> Option<String> {
    let said = |what: &str| stderr.iter().any(|line| line.contains(what));
    const OTHERWISE: &str = "use a distribution's QEMU (qemu-system-x86, qemu-system-arm), or name one with \
                             $PLUMB_QEMU; --clock stages and functions don't need plugins";
    // plugins/loader.c of QEMU 4.2 to 10: "requires API version 3, but this QEMU
    // supports only a minimum version of 4", and for none at all, of -plugin
    // itself (softmmu/vl.c).
    if said("plugin") && (said("API version") || said("requires")) {
        return Some(format!(
            "this QEMU's plugin interface is of another version than those (1 to 4, QEMU 4.2 to 10.0) that this \
             program was built for: {OTHERWISE}"
        ));
    }
    if said("undefined symbol: ") {
        return Some(format!(
            "this QEMU does not export its plugin interface, without which the plugin can't be loaded: {OTHERWISE}"
        ));
    }
    if (said("-plugin") && said("invalid option")) || said("not enabled in this build") {
        return Some(format!("this QEMU was built without TCG plugins: {OTHERWISE}"));
    }
    if said("Could not load plugin") || said("could not load plugin") {
        return Some("this QEMU could not load the plugin".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that QEMU's refusals are distinguished, and that other failures are not
    /// taken for one.
    #[test]
    fn refusals() {
        let refusal = |line: &str| describe_refusal(&[line.to_string()]);
        let version = refusal(
            "Could not load plugin /proc/self/fd/9: plugin requires API version 3, but this \
             QEMU supports only a minimum version of 9",
        );
        assert!(version.unwrap().contains("another version"));
        let stripped = refusal(
            "Could not load plugin /proc/self/fd/9: /proc/self/fd/9: undefined symbol: \
             qemu_plugin_reset",
        );
        assert!(stripped.unwrap().contains("does not export"));
        let none = refusal("qemu-system-x86_64: -plugin: invalid option");
        assert!(none.unwrap().contains("without TCG plugins"));
        let disabled = refusal("qemu-system-x86_64: plugin interface not enabled in this build");
        assert!(disabled.unwrap().contains("without TCG plugins"));
        assert_eq!(refusal("qemu-system-x86_64: could not load kernel"), None);
    }

    /// Check that the plugin is a shared object that has its version.
    #[test]
    fn plugin_is_carried() {
        assert_eq!(&PLUGIN[..4], b"\x7fELF");
        let symbol = b"qemu_plugin_version";
        assert!(PLUGIN.windows(symbol.len()).any(|w| w == symbol));
    }
}
