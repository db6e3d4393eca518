//! Plain structures that programs in the kernel and this half share, as bytes.

/// What is made of whole numbers alone, without padding: any bytes are a value of it.
///
/// # Safety
/// The type is `repr(C)`, of whole numbers, arrays of these and other such types, and has
/// no padding. netplumb-bpfc makes such types of the programs' headers, and checks it.
pub unsafe trait Plain: Copy + 'static {
    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the pointer and the size are one value's, and it has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// A value from its bytes, the first of them; none if there are too few.
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, and any bytes are a value.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// All of it zero.
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

    /// Check that a value is the same again from its bytes, and none from too few.
    #[test]
    fn there_and_back() {
        let two = Two {
            one: 7,
            other: [8, 9],
        };
        assert_eq!(two.bytes().len(), 8);
        assert_eq!(Two::read(two.bytes()), Some(two));
        assert_eq!(Two::read(&two.bytes()[..7]), None);
        assert_eq!(Two::zeroed().bytes(), [0; 8]);
    }
}
