//! USB network devices in this process, behind the kernel's `vhci_hcd`.

pub mod attach;
#[cfg(test)]
mod testing;
pub mod usbip;
