//! Structures shared with programs in the kernel, as bytes.

/// A type of integers without padding, for which any bytes are a valid value.
///
/// # Safety
/// The type is `repr(C)`, of integers, arrays and other such types, and has no padding.
/// netplumb-bpfc makes such types of the programs' headers, and checks it.
pub unsafe trait Plain: Copy + 'static {
    /// In the machine's byte order, as BPF maps have them.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the pointer and the size are one value's, and it has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// A value from the first bytes; none if they are too few.
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, and any bytes are a value.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// A value of zeros.
    fn zeroed() -> Self {
        // SAFETY: any bytes are a value.
        unsafe { std::mem::zeroed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Two {
        one: u32,
        other: [u16; 2],
    }
    // SAFETY: eight bytes of whole numbers.
    unsafe impl Plain for Two {}

    /// Check that a value round-trips, and that too few bytes give none.
    #[test]
    fn there_and_back() {
        let two = Two { one: 7, other: [8, 9] };
        assert_eq!(two.bytes().len(), 8);
        assert_eq!(Two::read(two.bytes()), Some(two));
        assert_eq!(Two::read(&two.bytes()[..7]), None);
        assert_eq!(Two::zeroed().bytes(), [0; 8]);
    }
}
