//! The ACPI table that guests of x86-64 get in place of QEMU's.
//!
//! Each QEMU has another DSDT. Parsing one moves all later allocations of the kernel, and functions such as `kfree`
//! take an instruction more or less by where a page is. Ours is the same in every QEMU. A kernel with
//! `ACPI_TABLE_UPGRADE` takes it from the beginning of its initramfs (drivers/acpi/tables.c); another one has QEMU's.

/// Where the kernel looks for it. Its directories are not in the archive, so that no file is made of it.
pub(super) const PATH: &str = "kernel/firmware/acpi/dsdt.aml";

/// `acpi/dsdt.asl`, as `iasl` compiles it.
pub(super) static DSDT: &[u8] = include_bytes!("acpi/dsdt.aml");

#[cfg(test)]
mod tests {
    use std::process::Command;

    use netplumb_testkit::skip;

    use super::*;

    /// The header's checksum, and the compiler and its version.
    const OF_THE_COMPILER: [std::ops::Range<usize>; 2] = [9..10, 28..36];

    /// Check that the table matches its source, and that the kernel accepts it.
    #[test]
    fn is_compiled_from_its_source() {
        assert_eq!(DSDT.len(), u32::from_le_bytes(DSDT[4..8].try_into().unwrap()) as usize);
        assert_eq!(DSDT.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)), 0);
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/vm/acpi/dsdt.asl");
        let compiled = Command::new("iasl")
            .arg("-p")
            .args([folder.path().join("dsdt").as_path(), source.as_ref()])
            .output();
        let Ok(output) = compiled else {
            skip("no iasl: apt-get install acpica-tools");
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let mut tables = [DSDT.to_vec(), std::fs::read(folder.path().join("dsdt.aml")).unwrap()];
        for table in &mut tables {
            for range in OF_THE_COMPILER {
                table[range].fill(0);
            }
        }
        assert_eq!(tables[0], tables[1]);
    }
}
