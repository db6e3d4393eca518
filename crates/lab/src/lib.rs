//! Where packets run: namespaces, and guests that hold some. Boots and carries
//! bytes; what they mean is others' business.

pub mod bundle;
pub mod cancel;
pub mod channel;
pub mod netns;
pub mod vm;
