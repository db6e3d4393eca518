//! Assigns functions to layers, by the rules of rules/layers.toml.

use globset::{Glob, GlobSet, GlobSetBuilder};
use netplumb_model::symbol::base_name;
use serde::Deserialize;

const BUILT_IN: &str = include_str!("../rules/layers.toml");

pub use netplumb_model::layers::{APPLICATION, LAYERS};

/// Parsed rules.
#[derive(Debug, Clone)]
pub struct LayerRules {
    rules: Vec<(String, GlobSet, GlobSet)>,
}

/// An error of a file of rules.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// A syntax error.
    #[error("layer rules: {0}")]
    Syntax(String),
    /// An unknown layer.
    #[error("layer rules: no such layer `{name}`; expected one of {}", LAYERS.join(", "))]
    NoSuchLayer {
        /// The given layer's name.
        name: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    layer: String,
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    modules: Vec<String>,
}

impl LayerRules {
    /// The rules that come with the program.
    pub fn built_in() -> LayerRules {
        // INVARIANT: the file is part of the binary, and a test parses it.
        #[allow(clippy::unwrap_used)]
        LayerRules::parse(BUILT_IN).unwrap()
    }

    /// Rules from a file's text.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn parse(text: &str) -> Result<LayerRules, LayerError> {
        let file: File = toml::from_str(text).map_err(|e| LayerError::Syntax(e.to_string()))?;
        let mut rules = Vec::new();
        for rule in file.rule {
            if !LAYERS.contains(&rule.layer.as_str()) {
                return Err(LayerError::NoSuchLayer { name: rule.layer });
            }
            rules.push((rule.layer, globs(&rule.functions)?, globs(&rule.modules)?));
        }
        Ok(LayerRules { rules })
    }

    /// Add rules that take precedence.
    pub fn override_with(&mut self, first: LayerRules) {
        self.rules.splice(0..0, first.rules);
    }

    /// The layer of a function, if any rule fits. A rule fits if one of its
    /// functions or one of its modules does.
    pub fn layer(&self, function: &str, module: Option<&str>) -> Option<&str> {
        // A clone of a function is that function: `foo.constprop.0`, `foo.cold`.
        let base = base_name(function);
        self.rules
            .iter()
            .find(|(_, functions, modules)| {
                functions.is_match(base) || module.is_some_and(|m| modules.is_match(m))
            })
            .map(|(layer, _, _)| layer.as_str())
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, LayerError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|e| LayerError::Syntax(e.to_string()))?);
    }
    set.build().map_err(|e| LayerError::Syntax(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the built-in rules parse, and that the first one that fits wins.
    #[test]
    fn built_in_rules() {
        let rules = LayerRules::built_in();
        assert_eq!(rules.layer("ip_output", None), Some("network"));
        assert_eq!(rules.layer("e1000_clean", Some("e1000")), Some("driver"));
        assert_eq!(rules.layer("ip_finish_output2.constprop.0", None), Some("network"));
        for clone in ["handle_softirqs.constprop.0", "handle_softirqs.cold"] {
            assert_eq!(rules.layer(clone, None), rules.layer("handle_softirqs", None));
        }
        assert_eq!(rules.layer("nft_do_chain", Some("nf_tables")), Some("netfilter"));
        assert_eq!(rules.layer("no_such_function", None), None);
    }

    /// Check that inline functions that a compiler left out of line have the layer of their subject.
    #[test]
    fn inline_functions() {
        let rules = LayerRules::built_in();
        for (function, layer) in [
            ("put_task_struct", "scheduling"),
            ("spin_unlock_bh", "locking"),
            ("__refcount_add.constprop.0", "library"),
            ("hlist_add_head_rcu", "library"),
            ("csum_fold", "copy"),
            ("__in_dev_get_rcu", "network"),
            ("put_net", "socket"),
            ("NF_HOOK.constprop.0", "netfilter"),
            ("virtio16_to_cpu", "bus"),
        ] {
            assert_eq!(rules.layer(function, None), Some(layer), "{function}");
        }
    }

    /// Check functions that every reader knows, of kernels 5.10 to 6.18, and the
    /// ones whose names mislead.
    #[test]
    fn well_known_functions() {
        #[rustfmt::skip]
        let known: &[(&str, &[&str])] = &[
            ("syscall", &[
                "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "x64_sys_call",
                "__x64_sys_sendto", "syscall_exit_to_user_mode", "exit_to_user_mode_prepare",
                "__fget_light", "vfs_write", "ep_poll_callback", "import_single_range",
            ]),
            ("filesystem", &[
                "filemap_fault", "__filemap_get_folio", "page_cache_ra_unbounded", "read_pages",
                "ondemand_readahead", "ext4_mpage_readpages", "xfs_vm_readahead", "iomap_readahead",
                "mpage_readahead", "jbd2_journal_start", "path_openat", "dput", "iput",
                "add_to_page_cache_lru",
            ]),
            ("block", &[
                "submit_bio", "submit_bio_noacct_nocheck", "bio_add_page", "blk_mq_submit_bio",
                "__blk_mq_alloc_requests", "blk_finish_plug", "elv_rb_add", "dd_insert_requests",
                "blkdev_readahead", "part_in_flight", "update_io_ticks", "bdev_start_io_acct",
            ]),
            ("socket", &[
                "__sys_sendto", "sock_sendmsg", "sockfd_lookup_light", "inet_sendmsg",
                "inet6_recvmsg", "lock_sock_nested", "sk_filter_trim_cap", "sock_wfree",
                "skb_set_owner_w", "__skb_recv_datagram", "packet_rcv",
            ]),
            ("transport", &[
                "tcp_v4_rcv", "__tcp_transmit_skb", "udp_sendmsg", "udpv6_queue_rcv_one_skb",
                "raw_rcv", "ping_rcv", "inet_ehashfn", "__inet6_lookup_established",
                "cubictcp_acked", "bpf_skops_write_hdr_opt", "inet_csk_reset_xmit_timer",
                "tcp_gro_receive", "compute_score",
            ]),
            ("network", &[
                "ip_output", "__ip_queue_xmit", "ip_forward", "ip6_forward", "ip_rcv_finish_core",
                "inet6_csk_xmit", "ip_route_input_slow", "fib_table_lookup", "__find_rr_leaf",
                "dst_release", "icmp_reply", "inet_gro_receive", "inet_lookup_ifaddr_rcu",
                "xfrm_lookup", "l3mdev_l3_rcv", "rt6_score_route",
            ]),
            ("netfilter", &[
                "nf_hook_slow", "nft_do_chain", "ipt_do_table", "nf_conntrack_in",
                "br_nf_pre_routing",
            ]),
            ("link", &[
                "__dev_queue_xmit", "dev_hard_start_xmit", "validate_xmit_skb", "sch_direct_xmit",
                "__qdisc_run", "pfifo_fast_dequeue", "fq_codel_dequeue", "__netif_receive_skb_core",
                "net_rx_action", "process_backlog", "enqueue_to_backlog", "napi_gro_receive",
                "neigh_resolve_output", "arp_rcv", "ndisc_rcv", "eth_type_trans", "br_handle_frame",
                "skb_segment", "dql_completed",
            ]),
            ("driver", &[
                "loopback_xmit", "veth_xmit", "e1000_clean", "virtnet_poll", "start_xmit",
                "page_to_skb", "free_old_xmit_skbs", "usbnet_start_xmit", "net_failover_start_xmit",
            ]),
            ("bus", &[
                "virtqueue_add_split", "vring_interrupt", "vp_notify", "usb_hcd_submit_urb",
                "uhci_submit_common", "dma_map_page_attrs", "iowrite16",
                "__dev_pm_qos_resume_latency", "__pm_runtime_resume",
            ]),
            ("memory", &[
                "__alloc_skb", "kfree_skb_reason", "napi_consume_skb", "netdev_alloc_frag",
                "dev_kfree_skb_any_reason", "skb_put", "skb_clone", "kmem_cache_alloc_node",
                "kmalloc_reserve", "page_pool_alloc_pages", "__alloc_frozen_pages_noprof",
                "clear_page_rep", "memcg_slab_post_alloc_hook", "slob_alloc", "slob_page_alloc.constprop.0",
                "slob_free", "pte_offset_kernel.isra.0",
            ]),
            ("copy", &[
                "_copy_from_iter", "copyin", "copy_user_generic_string", "rep_movs_alternative",
                "__memset", "csum_partial", "skb_copy_datagram_iter", "__skb_checksum_complete",
                "__check_object_size",
            ]),
            ("locking", &[
                "_raw_spin_lock_irqsave", "__rcu_read_unlock", "mutex_lock", "ct_irq_enter",
                "rcu_irq_enter", "native_queued_spin_lock_slowpath", "up_read", "call_rcu",
            ]),
            ("scheduling", &[
                "try_to_wake_up", "__schedule", "__update_load_avg_se", "__wake_up_common",
                "queue_work_on", "do_idle", "native_safe_halt", "__cond_resched",
            ]),
            ("timer", &[
                "mod_timer", "ktime_get", "read_tsc", "hrtimer_interrupt", "tick_nohz_idle_enter",
                "clockevents_program_event", "native_sched_clock",
                "asm_sysvec_apic_timer_interrupt",
            ]),
            ("interrupt", &[
                "asm_common_interrupt", "handle_fasteoi_irq", "ioapic_ack_level", "__irq_exit_rcu",
                "__do_softirq", "handle_softirqs", "__local_bh_enable_ip", "tasklet_action_common",
                "add_interrupt_randomness",
            ]),
            ("security", &[
                "security_socket_sendmsg", "apparmor_socket_sendmsg", "aa_sk_perm",
                "tomoyo_socket_sendmsg", "bpf_lsm_socket_sendmsg", "selinux_ip_postroute",
                "ns_capable", "make_kuid",
            ]),
            ("bpf", &[
                "bpf_prog_6deef7357e7b4530_drop", "xdp_do_redirect", "__cgroup_bpf_run_filter_skb",
            ]),
            ("tracing", &[
                "__traceiter_consume_skb", "trace_call_bpf", "perf_trace_buf_alloc",
                "__bpf_trace_consume_skb",
            ]),
            ("mitigation", &[
                "__x86_return_thunk", "__x86_indirect_thunk_rax", "srso_return_thunk",
                "retbleed_return_thunk", "entry_ibpb", "clear_bhb_loop",
            ]),
            ("library", &[
                "__list_add_valid", "__list_del_entry_valid_or_report", "memcmp", "siphash_3u32",
                "_find_next_bit", "rb_erase", "get_random_u32", "net_ratelimit", "irq_fpu_usable",
            ]),
        ];
        let rules = LayerRules::built_in();
        for (layer, functions) in known {
            for function in *functions {
                assert_eq!(rules.layer(function, None), Some(*layer), "{function}");
            }
        }
        let named: Vec<_> = known.iter().map(|(layer, _)| *layer).collect();
        for layer in LAYERS.iter().filter(|layer| **layer != APPLICATION) {
            assert!(named.contains(layer), "no function stands for {layer}");
        }
    }

    /// Check that a module of one layer takes its functions with it, whatever their names, and that elsewhere only the
    /// names count.
    #[test]
    fn modules_come_first() {
        let rules = LayerRules::built_in();
        assert_eq!(rules.layer("tcp_in_window", Some("nf_conntrack")), Some("netfilter"));
        assert_eq!(rules.layer("tcp_in_window", None), Some("transport"));
        assert_eq!(rules.layer("skb_recv_done", Some("virtio_net")), Some("driver"));
        assert_eq!(rules.layer("detach_buf_split", Some("virtio_ring")), Some("bus"));
        assert_eq!(rules.layer("fib_rules_seq", Some("sch_fq")), Some("link"));
        assert_eq!(rules.layer("anything", Some("bpf")), Some("bpf"));
        assert_eq!(rules.layer("add_block_entry", Some("ext4")), Some("filesystem"));
        assert_eq!(rules.layer("end_cmd", Some("null_blk")), Some("driver"));
        assert_eq!(rules.layer("dd_dispatch_request", None), Some("block"));
        assert_eq!(rules.layer("some_function", Some("some_module")), None);
        assert_eq!(rules.layer("tcp_sendmsg", Some("some_module")), Some("transport"));
    }

    /// Check that a user's rules are asked first, and that others still hold.
    #[test]
    fn overrides_come_first() {
        let mut rules = LayerRules::built_in();
        let text = "[[rule]]\nlayer = \"link\"\nfunctions = [\"ip_output\"]\n";
        rules.override_with(LayerRules::parse(text).unwrap());
        assert_eq!(rules.layer("ip_output", None), Some("link"));
        assert_eq!(rules.layer("ip_rcv", None), Some("network"));
    }

    /// Check that an unknown layer is refused, with the known ones listed.
    #[test]
    fn unknown_layer() {
        let error = LayerRules::parse("[[rule]]\nlayer = \"ip\"\n").unwrap_err();
        assert!(
            error.to_string().contains("no such layer `ip`; expected one of application, syscall"),
            "{error}"
        );
    }
}
