//! The kernel's BTF of functions: their parameters, and the ids for attaching programs.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_sys as sys;

use super::layout::direction;

const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_TYPEDEF: u32 = 8;
const KIND_CONST: u32 = 10;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_TYPE_TAG: u32 = 18;

/// The type of a function's packet argument: `FUNCTIONS_TAKES_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Takes {
    /// `struct sk_buff *`.
    Skb = 1,
    /// `struct sock *`.
    Sock = 2,
    /// `struct socket *`.
    Socket = 3,
}

/// A function that can be selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    /// The symbol, by which tracing names it.
    pub(super) name: String,
    /// Its module, by index into [`Types::modules`].
    pub(super) module: Option<usize>,
    /// Its number in the BTF of its module or of the kernel.
    pub(super) id: u32,
    /// Arguments.
    pub(super) arguments: u8,
    /// The first that is a packet or a socket, and which it is.
    pub(super) packet: Option<(u8, Takes)>,
    /// Whether any argument is an skb.
    pub(super) takes_skb: bool,
}

/// A module with type information.
#[derive(Debug)]
pub(super) struct Module {
    /// As in `/sys/kernel/btf`.
    pub(super) name: String,
    /// Its type information.
    pub(super) fd: OwnedFd,
}

/// All functions of the kernel and its modules.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// Functions, the kernel's first.
    pub(super) functions: Vec<Described>,
    /// Their modules.
    pub(super) modules: Vec<Module>,
    /// Tracepoints of the kernel itself.
    tracepoints: HashMap<String, u32>,
    names: HashMap<String, usize>,
}

struct Btf(*mut sys::btf);

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: the pointer came from libbpf and is freed once.
        unsafe { sys::btf__free(self.0) }
    }
}

impl Btf {
    /// A type's kind, name, size or type, number of members, and where these are.
    fn at(&self, id: u32) -> Option<(&sys::btf_type, u32, usize)> {
        // SAFETY: the object is alive; the pointer is NULL or to a type of it.
        let found = unsafe { sys::btf__type_by_id(self.0, id).as_ref() }?;
        let kind = found.info >> 24 & 0x1f;
        Some((found, kind, (found.info & 0xffff) as usize))
    }

    fn name(&self, offset: u32) -> &str {
        // SAFETY: the object is alive; the name is NULL or NUL-terminated within it.
        unsafe {
            let name = sys::btf__name_by_offset(self.0, offset);
            if name.is_null() {
                return "";
            }
            CStr::from_ptr(name).to_str().unwrap_or("")
        }
    }

    /// What a type points to, if that is one of [`Takes`].
    fn pointee(&self, mut id: u32) -> Option<Takes> {
        let mut pointers = 0;
        for _ in 0..8 {
            let (found, kind, _) = self.at(id)?;
            // SAFETY: for these kinds the union is a type's number.
            let next = unsafe { found.__bindgen_anon_1.type_ };
            match kind {
                KIND_PTR => pointers += 1,
                KIND_TYPEDEF | KIND_CONST | KIND_TYPE_TAG => {}
                KIND_STRUCT if pointers == 1 => {
                    return match self.name(found.name_off) {
                        "sk_buff" => Some(Takes::Skb),
                        "sock" => Some(Takes::Sock),
                        "socket" => Some(Takes::Socket),
                        _ => None,
                    };
                }
                _ => return None,
            }
            id = next;
        }
        None
    }

    fn function(&self, found: &sys::btf_type, id: u32) -> Option<Described> {
        // SAFETY: a function's union is its prototype's number.
        let (prototype, kind, count) = self.at(unsafe { found.__bindgen_anon_1.type_ })?;
        if kind != KIND_FUNC_PROTO {
            return None;
        }
        // SAFETY: a prototype is followed by its `count` parameters.
        let parameters = unsafe {
            let first = ptr::from_ref(prototype).add(1).cast::<sys::btf_param>();
            std::slice::from_raw_parts(first, count)
        };
        let takes: Vec<_> = parameters.iter().map(|p| self.pointee(p.type_)).collect();
        // A socket is always complete; an skb may have no header yet.
        let first = |wanted: &[Takes]| {
            let at = takes.iter().position(|t| t.is_some_and(|t| wanted.contains(&t)))?;
            Some((at as u8, takes[at]?))
        };
        Some(Described {
            name: self.name(found.name_off).to_string(),
            module: None,
            id,
            arguments: count.min(255) as u8,
            packet: first(&[Takes::Skb]).or_else(|| first(&[Takes::Sock, Takes::Socket])),
            takes_skb: takes.contains(&Some(Takes::Skb)),
        })
    }

    fn count(&self) -> u32 {
        // SAFETY: the object is alive.
        unsafe { sys::btf__type_cnt(self.0) }
    }
}

impl Types {
    /// Read the BTF of the kernel.
    ///
    /// # Errors
    /// The kernel has no BTF.
    pub(super) fn load() -> io::Result<Types> {
        let mut types = Types::default();
        // SAFETY: takes nothing; gives an owned object or NULL with errno set.
        let kernel = Btf(unsafe { sys::btf__load_vmlinux_btf() });
        if kernel.0.is_null() {
            return Err(io::Error::last_os_error());
        }
        types.take(&kernel, 1, None);
        let mut id = 0;
        // SAFETY: `id` is ours to write to.
        while unsafe { sys::bpf_btf_get_next_id(id, &raw mut id) } == 0 {
            // A module that is just being unloaded is passed over.
            let _ = types.module(id, &kernel);
        }
        types.names = HashMap::with_capacity(types.functions.len());
        for (index, function) in types.functions.iter().enumerate() {
            // The kernel's own comes first, and stays.
            types.names.entry(function.name.clone()).or_insert(index);
        }
        Ok(types)
    }

    /// Only these functions, for tests.
    #[cfg(test)]
    pub(super) fn from_functions(functions: Vec<Described>) -> Types {
        let names = functions.iter().enumerate();
        Types {
            names: names.map(|(index, f)| (f.name.clone(), index)).collect(),
            functions,
            ..Default::default()
        }
    }

    fn take(&mut self, btf: &Btf, from: u32, module: Option<usize>) {
        for id in from..btf.count() {
            let Some((found, kind, _)) = btf.at(id) else {
                continue;
            };
            if kind == KIND_FUNC {
                if let Some(mut function) = btf.function(found, id) {
                    function.module = module;
                    self.functions.push(function);
                }
            } else if kind == KIND_TYPEDEF
                && module.is_none()
                && let Some(name) = btf.name(found.name_off).strip_prefix("btf_trace_")
            {
                self.tracepoints.insert(name.to_string(), id);
            }
        }
    }

    fn module(&mut self, id: u32, kernel: &Btf) -> io::Result<()> {
        // SAFETY: takes a number, gives a descriptor or an error number.
        let fd = unsafe { sys::bpf_btf_get_fd_by_id(id) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut name = [0_u8; 64];
        let mut info = sys::bpf_btf_info {
            name: name.as_mut_ptr() as u64,
            name_len: name.len() as u32,
            ..Default::default()
        };
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the kernel writes no more than `size` bytes, and the name into the
        // buffer that it was given.
        let result =
            unsafe { sys::bpf_btf_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut size) };
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        if result < 0 || info.kernel_btf == 0 || name == "vmlinux" || name.is_empty() {
            return Ok(());
        }
        // SAFETY: the base outlives the split object.
        let btf = Btf(unsafe { sys::btf__load_from_kernel_by_id_split(id, kernel.0) });
        if btf.0.is_null() {
            return Err(io::Error::last_os_error());
        }
        self.modules.push(Module { name, fd });
        let at = self.modules.len() - 1;
        self.take(&btf, kernel.count(), Some(at));
        Ok(())
    }

    /// A function by its name.
    pub(super) fn find(&self, name: &str) -> Option<&Described> {
        Some(&self.functions[*self.names.get(name)?])
    }

    /// A tracepoint's number.
    pub(super) fn tracepoint(&self, name: &str) -> Option<u32> {
        self.tracepoints.get(name).copied()
    }

    /// The descriptor of a function's module's type information, or 0.
    pub(super) fn module_fd(&self, function: &Described) -> i32 {
        function.module.map_or(0, |m| self.modules[m].fd.as_raw_fd())
    }

    /// The name of a function's module.
    pub(super) fn module_name(&self, function: &Described) -> Option<&str> {
        Some(&self.modules[function.module?].name)
    }
}

/// Where a received packet becomes a forwarded one.
pub(super) const FORWARD: &[&str] = &[
    "ip_forward",
    "ip6_forward",
    "ip_mr_forward",
    "br_forward",
    "neigh_xmit",
    "nf_flow_queue_xmit",
];
/// Where a received packet becomes an answered one.
pub(super) const ECHO: &[&str] = &["icmp_echo", "icmpv6_echo_reply"];

/// What a function does with a packet, by its name; `direction::OTHER` where that does
/// not show. Decides the direction of a packet that is first seen there or below, in a
/// task; in a softirq the softirq decides, except for packets that are forwarded or
/// answered.
pub(super) fn hint(name: &str) -> u32 {
    const RX: &[&str] = &[
        "recv",
        "_rcv",
        "receive",
        "napi",
        "process_backlog",
        "net_rx",
        "skb_copy_datagram",
        "_deliver",
        "sock_queue_rcv",
        "_rx_",
        "data_ready",
        "sock_def_readable",
        "enqueue_schedule",
    ];
    const TX: &[&str] = &[
        "send",
        "xmit",
        "_output",
        "queue_xmit",
        "push_pending",
        "net_tx",
        "_tx_",
        "ip_append_data",
        "ip_make_skb",
        "write_space",
        "ip_local_out",
        "finish_output",
        "tcp_push",
        "tcp_write",
    ];
    // By the original's name, for a clone.
    let base = name.split('.').next().unwrap_or(name);
    if FORWARD.contains(&base) {
        return direction::FORWARD;
    }
    if ECHO.contains(&base) {
        return direction::ECHO;
    }
    let has = |words: &[&str]| words.iter().any(|w| base.contains(w));
    if has(RX) {
        direction::RX
    } else if has(TX) {
        direction::TX
    } else {
        direction::OTHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the hints from names.
    #[test]
    fn names_have_the_direction() {
        for (name, expected) in [
            ("udp_sendmsg", direction::TX),
            ("__x64_sys_sendto", direction::TX),
            ("tcp_recvmsg_locked", direction::RX),
            ("ip_rcv", direction::RX),
            ("ip_forward", direction::FORWARD),
            ("icmp_echo.part.0", direction::ECHO),
            ("sock_poll", direction::OTHER),
            ("dev_queue_xmit", direction::TX),
        ] {
            assert_eq!(hint(name), expected, "{name}");
        }
    }
}
