//! The twins of what frames.h and stamp.h declare.

/// Whole words of the longest headers.
pub(super) const WORDS: usize = 9;
/// Sizes that a mix has.
pub(super) const SIZES: usize = 3;
/// Frames that it goes round in.
pub(super) const MIX: usize = 12;
/// Errors that are told apart.
pub(super) const ERRORS: usize = 136;
/// What is owed for longer is forgotten.
pub(super) const BEHIND_NS: u64 = 10_000_000;
/// So that the sums of times between frames, in 1/65536 ns and times a number of 16
/// bits, stay in 64.
pub(super) const PPS_LEAST: f64 = 1.0;
/// `enum frames_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Mode {
    Full,
    Loop,
    Redirect,
}

/// `struct frames_template`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Template {
    pub(super) words: [u64; WORDS],
    pub(super) tail: u64,
    pub(super) ip_sum: u32,
    pub(super) l4_sum: u32,
    pub(super) size_bytes: u32,
    pub(super) reserved: u32,
}

/// `struct frames_config`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Config {
    pub(super) templates: [Template; SIZES],
    pub(super) mix: [u8; MIX],
    pub(super) mode: u32,
    pub(super) device: u32,
    pub(super) net: u32,
    pub(super) header_bytes: u32,
    pub(super) written_bytes: u32,
    pub(super) size_bytes: u32,
    pub(super) address_at: u32,
    pub(super) port_at: u32,
    pub(super) ip_check_at: u32,
    pub(super) l4_check_at: u32,
    pub(super) address_in_l4_check: u32,
    pub(super) is_udp: u32,
    pub(super) first_address: u32,
    pub(super) first_port: u32,
    pub(super) ports: u32,
    pub(super) varying: u32,
    pub(super) many_flows: u32,
    pub(super) many_addresses: u32,
    pub(super) many_sizes: u32,
    pub(super) paced: u32,
    pub(super) stamped: u32,
}

/// `struct frames_slot`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) idle: u64,
    pub(super) behind: u64,
    pub(super) due_ns: u64,
    pub(super) due_part: u64,
    pub(super) now_ns: u64,
    pub(super) gap: u64,
    pub(super) random: u64,
    pub(super) flows: u32,
    pub(super) first_port_step: u32,
    pub(super) first_address_step: u32,
    pub(super) flow: u32,
    pub(super) port_step: u32,
    pub(super) address_step: u32,
    pub(super) turn: u32,
    pub(super) first_turn: u32,
    pub(super) sent: u64,
    pub(super) batches: u64,
    pub(super) refused: [u64; ERRORS],
    pub(super) end: [u64; 1],
}

// No byte of them is padding, so that they can be read and written as bytes.
const _: () = assert!(size_of::<Template>() == 8 * (WORDS + 3));
const _: () = assert!(size_of::<Config>() == SIZES * size_of::<Template>() + MIX + 4 * 21);
const _: () = assert!(size_of::<Slot>() == 8 * 9 + 4 * 8 + 8 * (2 + ERRORS + 1));

/// A plain structure of C, as bytes.
pub(super) trait Plain: Copy + 'static {
    fn bytes(&self) -> &[u8];
    fn read(bytes: &[u8]) -> Option<Self>;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Plain for $type {
            fn bytes(&self) -> &[u8] {
                // SAFETY: it is made of whole numbers, without padding (see above).
                unsafe {
                    std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<$type>())
                }
            }

            fn read(bytes: &[u8]) -> Option<$type> {
                if bytes.len() != size_of::<$type>() {
                    return None;
                }
                // SAFETY: there are as many bytes as it takes, and any are whole numbers.
                Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
            }
        }
    )*};
}
plain!(Config, Slot);

impl Default for Slot {
    fn default() -> Slot {
        // SAFETY: all of it is whole numbers, which may be zero.
        unsafe { std::mem::zeroed() }
    }
}
