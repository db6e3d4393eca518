//! The BTF of the running kernel, to look up tracepoints.

use libbpf_rs::btf::{Btf, types};

use super::BpfError;

/// Read it.
///
/// # Errors
/// The kernel has no BTF.
pub fn of_kernel() -> Result<Btf<'static>, BpfError> {
    super::quiet();
    Btf::from_vmlinux().map_err(BpfError::NoTypes)
}

/// Whether the kernel has a tracepoint.
pub fn has_tracepoint(kernel: &Btf<'_>, tracepoint: &str) -> bool {
    let name = format!("btf_trace_{tracepoint}");
    kernel.type_by_name::<types::Typedef<'_>>(&name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a tracepoint of every kernel is found, and an unknown one is not.
    #[test]
    fn tracepoints() {
        let Ok(kernel) = of_kernel() else {
            netplumb_testkit::skip("this kernel has no BTF");
            return;
        };
        assert!(has_tracepoint(&kernel, "netif_receive_skb"));
        assert!(!has_tracepoint(&kernel, "no_such_tracepoint"));
    }
}
