//! What the driver asks of the device as a whole: attributes, events, statistics.

use zerocopy::Immutable;
use zerocopy::IntoBytes;
use zerocopy::KnownLayout;
use zerocopy::little_endian::U64;

use super::Device;
use super::admin::Request;
use super::admin::Response;
use super::layout::DeviceAttr;
use super::layout::EventQueueAttr;
use super::layout::Feature;
use super::layout::GetStats;
use super::layout::HwHints;
use super::layout::NetworkAttr;
use super::layout::QueueAttr;
use super::layout::Status;
use super::limits;

/// `efa_admin_aq_feature_id`.
mod id {
    pub(super) const DEVICE_ATTR: u8 = 1;
    pub(super) const AENQ_CONFIG: u8 = 2;
    pub(super) const NETWORK_ATTR: u8 = 3;
    pub(super) const QUEUE_ATTR: u8 = 4;
    pub(super) const HW_HINTS: u8 = 5;
    pub(super) const HOST_INFO: u8 = 6;
    pub(super) const EVENT_QUEUE_ATTR: u8 = 7;
}

const FEATURES: u64 = 1 << id::DEVICE_ATTR
    | 1 << id::AENQ_CONFIG
    | 1 << id::NETWORK_ATTR
    | 1 << id::QUEUE_ATTR
    | 1 << id::HW_HINTS
    | 1 << id::HOST_INFO
    | 1 << id::EVENT_QUEUE_ATTR;
/// All powers of two from 4 KiB to 2 GiB.
const PAGE_SIZES: u64 = 0xffff_f000;
/// `efa_admin_feature_device_attr_desc.device_caps`: RDMA read, retries at a peer without receives,
/// RDMA write, writes with immediate data that take no receive.
const CAPABILITIES: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 4;
/// Fatal errors, warnings, notifications, keep-alives.
const EVENTS: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4;
/// `efa_admin_host_info`.
const HOST_INFO_SIZE: u32 = 128 + 4 + 32 + 4 + 4 + 2 + 2 + 4;

/// What the device counts: `efa_admin_basic_stats`, `_messages_stats`, `_rdma_read_stats`,
/// `_rdma_write_stats` and, for newer drivers, `_network_stats`.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Statistics {
    pub(super) basic: Basic,
    pub(super) messages: Messages,
    pub(super) reads: Rdma,
    pub(super) writes: Rdma,
    pub(super) network: Network,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Basic {
    pub(super) tx_bytes: U64,
    pub(super) tx_pkts: U64,
    pub(super) rx_bytes: U64,
    pub(super) rx_pkts: U64,
    pub(super) rx_drops: U64,
    pub(super) qkey_viol: U64,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Messages {
    pub(super) send_bytes: U64,
    pub(super) send_wrs: U64,
    pub(super) recv_bytes: U64,
    pub(super) recv_wrs: U64,
}

/// Of reads or writes: work requests, their bytes, those that failed, bytes for others.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Rdma {
    pub(super) wrs: U64,
    pub(super) bytes: U64,
    pub(super) errors: U64,
    pub(super) for_others: U64,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Network {
    pub(super) retrans_bytes: U64,
    pub(super) retrans_pkts: U64,
    pub(super) retrans_timeout_events: U64,
    pub(super) unresponsive_remote_events: U64,
    pub(super) impaired_remote_conn_events: U64,
}

/// Counts on.
pub(super) fn count(counter: &mut U64, more: usize) {
    *counter = (counter.get() + more as u64).into();
}

impl Device {
    pub(super) fn get_feature(&mut self, request: &Request) -> Result<Response, Status> {
        let Feature { feature_id, .. } = request.body()?;
        Ok(match feature_id {
            id::DEVICE_ATTR => Response::of(&self.attributes()),
            id::AENQ_CONFIG => Response::of(&[EVENTS.to_le(), self.enabled_events.to_le()]),
            id::NETWORK_ATTR => {
                Response::of(&NetworkAttr { addr: self.address.0, mtu: limits::MTU.into() })
            }
            id::QUEUE_ATTR => Response::of(&queues()),
            // Zeroes: the driver's own values.
            id::HW_HINTS => Response::of(&HwHints {
                mmio_read_timeout: 0.into(),
                driver_watchdog_timeout: 0.into(),
                admin_completion_timeout: 0.into(),
                poll_interval: 0.into(),
            }),
            id::EVENT_QUEUE_ATTR => Response::of(&EventQueueAttr {
                max_eq: u32::from(limits::MAX_EQ).into(),
                max_eq_depth: u32::from(limits::MAX_EQ_DEPTH).into(),
                event_bitmask: 1.into(),
            }),
            _ => return Err(Status::UnsupportedOpcode),
        })
    }

    pub(super) fn set_feature(&mut self, request: &Request) -> Result<Response, Status> {
        let feature: Feature = request.body()?;
        match feature.feature_id {
            id::AENQ_CONFIG if feature.enabled_groups.get() & !EVENTS == 0 => {
                self.enabled_events = feature.enabled_groups.get();
            }
            id::HOST_INFO => {
                let length = feature.control_buffer.length.get();
                if length < HOST_INFO_SIZE {
                    return Err(Status::IllegalParameter);
                }
                let mut system = [0; 128];
                let at = feature.control_buffer.address.get();
                self.bus.read(at, &mut system).map_err(|_| Status::MalformedRequest)?;
                let name = String::from_utf8_lossy(&system);
                log::info!("the host runs {}", name.trim_end_matches('\0'));
            }
            id::AENQ_CONFIG => return Err(Status::IllegalParameter),
            _ => return Err(Status::UnsupportedOpcode),
        }
        Ok(Response::EMPTY)
    }

    pub(super) fn get_stats(&mut self, request: &Request) -> Result<Response, Status> {
        let GetStats { stats, .. } = request.body()?;
        Ok(match stats {
            0 => Response::of(&self.statistics.basic),
            1 => Response::of(&self.statistics.messages),
            2 => Response::of(&self.statistics.reads),
            3 => Response::of(&self.statistics.writes),
            4 => Response::of(&self.statistics.network),
            _ => return Err(Status::IllegalParameter),
        })
    }

    fn attributes(&self) -> DeviceAttr {
        let [.., a, b, c, d, e, f, g, h] = self.address.0;
        DeviceAttr {
            supported_features: FEATURES.into(),
            page_size_cap: PAGE_SIZES.into(),
            fw_version: 1.into(),
            admin_api_version: 1.into(),
            device_version: 1.into(),
            db_bar: u16::from(limits::DOORBELL_BAR).into(),
            phys_addr_width: 48,
            virt_addr_width: 57,
            device_caps: CAPABILITIES.into(),
            max_rdma_size: limits::MAX_RDMA.into(),
            guid: u64::from_le_bytes([a, b, c, d, e, f, g, h]).into(),
            max_link_speed_gbps: 100.into(),
            reserved: 0.into(),
            reserved2: 0.into(),
        }
    }
}

fn queues() -> QueueAttr {
    QueueAttr {
        max_qp: u32::from(limits::MAX_QP).into(),
        max_sq_depth: limits::MAX_SQ_DEPTH.into(),
        inline_buf_size: u32::from(limits::MAX_INLINE).into(),
        max_rq_depth: limits::MAX_RQ_DEPTH.into(),
        max_cq: u32::from(limits::MAX_CQ).into(),
        max_cq_depth: u32::from(limits::MAX_CQ_DEPTH).into(),
        sub_cqs_per_cq: 1.into(),
        min_sq_depth: 16.into(),
        max_wr_send_sges: limits::MAX_SGES.into(),
        max_wr_recv_sges: limits::MAX_SGES.into(),
        max_mr: limits::MAX_MR.into(),
        max_mr_pages: limits::MAX_MR_PAGES.into(),
        max_pd: u32::from(limits::MAX_PD).into(),
        max_ah: u32::from(limits::MAX_AH).into(),
        max_llq_size: limits::MAX_LLQ.into(),
        max_wr_rdma_sges: 1.into(),
        max_tx_batch: 0.into(),
    }
}
