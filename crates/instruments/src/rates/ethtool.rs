//! A driver's own counters, by ethtool's ioctl (include/uapi/linux/ethtool.h): there is
//! no other way to them.

use std::collections::BTreeMap;
use std::io;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
/// Which set of strings: ETH_SS_STATS.
const STATS: u32 = 1;
/// ETH_GSTRING_LEN.
const NAME_BYTES: usize = 32;
/// More counters than any driver has.
const MOST: usize = 1 << 16;
/// Room beyond what was told: the kernel goes by what the driver has when it is asked
/// for names and values, which is more if queues were added since.
const MORE: usize = 1 << 12;

/// Counters of a device by name; none where the driver has none. `fd` is any socket of
/// the device's namespace.
pub(super) fn statistics(fd: i32, device: &str) -> io::Result<BTreeMap<String, u64>> {
    let Some(count) = count(fd, device)? else {
        return Ok(BTreeMap::new());
    };
    // struct ethtool_gstrings: command, set, length, then the names.
    let room = count + MORE;
    let mut names = words(12 + room * NAME_BYTES);
    put(&mut names, &[ETHTOOL_GSTRINGS, STATS, count as u32]);
    ask(fd, device, &mut names)?;
    // struct ethtool_stats: command, length, then the counters.
    let mut values = words(8 + room * 8);
    put(&mut values, &[ETHTOOL_GSTATS, count as u32]);
    ask(fd, device, &mut values)?;
    let names = bytes(&names);
    let named = names[12..].chunks_exact(NAME_BYTES).map(name);
    Ok(named.zip(values[1..].iter().copied()).take(count).collect())
}

/// How many there are.
fn count(fd: i32, device: &str) -> io::Result<Option<usize>> {
    // struct ethtool_sset_info: command, reserved, a mask of 64 bits, then lengths.
    let mut data = words(20);
    put(&mut data, &[ETHTOOL_GSSET_INFO]);
    data[1] = 1 << STATS;
    match ask(fd, device, &mut data) {
        Ok(()) if data[1] & 1 << STATS != 0 => {
            let count = u32::from_ne_bytes(bytes(&data)[16..20].try_into().unwrap_or_default());
            Ok(Some(count as usize).filter(|n| (1..=MOST).contains(n)))
        }
        Ok(()) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Room for so many bytes, aligned as counters are.
fn words(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

fn put(data: &mut [u64], numbers: &[u32]) {
    for (word, pair) in data.iter_mut().zip(numbers.chunks(2)) {
        let mut bytes = [0; 8];
        for (to, from) in bytes.chunks_exact_mut(4).zip(pair) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        *word = u64::from_ne_bytes(bytes);
    }
}

fn bytes(data: &[u64]) -> Vec<u8> {
    data.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A name that ends where it ends, or at the first 0.
fn name(bytes: &[u8]) -> String {
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_string()
}

/// Ask a device; `data` begins with the command, and has room for its answer.
fn ask(fd: i32, device: &str, data: &mut [u64]) -> io::Result<()> {
    if device.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: an all-zero ifreq is a valid one, to be filled in.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: the request points to `data`, which outlives the call. The kernel writes an
    // entry for each counter (ethtool_get_strings and ethtool_get_stats in
    // net/ethtool/ioctl.c), and there is room for MORE than it said there were.
    if unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &mut request) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers lie where the kernel looks for them, and names end.
    #[test]
    fn layout() {
        let mut data = words(20);
        assert_eq!(data.len(), 3);
        put(&mut data, &[1, 2, 3]);
        let flat = bytes(&data);
        let at = |n: usize| u32::from_ne_bytes(flat[n..n + 4].try_into().unwrap());
        assert_eq!([at(0), at(4), at(8), at(12)], [1, 2, 3, 0]);
        assert_eq!(name(b"  rx_drops\0\0junk"), "rx_drops");
        assert_eq!(name(&[b'a'; 32]), "a".repeat(32));
    }
}
