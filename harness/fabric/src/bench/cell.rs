//! A cell: the result of one flow of one step.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::bench::options::Sweep;
use crate::bench::plan::Flow;
use crate::bench::plan::Step;
use crate::bench::sender::FlowOutcome;
use crate::counters;

/// Counters of what the peer was not ready for, as drivers call them: mlx5, rxe, bnxt_re, irdma, mana, ionic.
/// EFA counts at the receiver alone, and hns not at all.
const RNR_NAKS: &[&str] = &[
    "rnr_nak_retry_err",
    "rcvd_rnr_err",
    "rnr_naks_rcvd",
    "RnrNakRecv",
    "requester_rnr_nak",
    "req_rx_rnr_retry_err",
];
/// Counters of what was sent again or had to be: of mlx5, rxe, bnxt_re, irdma, efa, mana and ionic. hns counts
/// no loss.
const RETRANSMITS: &[&str] = &[
    "local_ack_timeout_err",
    "packet_seq_err",
    "roce_adp_retrans",
    "completer_retry_err",
    "rcvd_seq_err",
    "to_retransmits",
    "RetransSegs",
    "retrans_pkts",
    "requester_timeout",
    "requester_oos_nak",
    "requester_implicit_nak",
    "tx_rdma_retx_pkts",
];
/// What has left by the wire: what is looped back on the NIC has not.
const PHY_BYTES: &[&str] = &["ethtool tx_bytes_phy"];

/// One measurement of a sweep on one path in one direction. What failed has no numbers, never
/// zeroes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Cell {
    pub sweep: Option<Sweep>,
    pub from: u32,
    pub to: u32,
    pub rail: usize,
    /// In bytes.
    pub size: usize,
    /// None: unpaced.
    pub(crate) target_gbps: Option<f64>,
    pub repeat: u32,
    pub(crate) valid: bool,
    pub messages: u64,
    pub seconds: Option<f64>,
    pub gbps: Option<f64>,
    pub(crate) messages_per_second: Option<f64>,
    /// Of the path's MTU, without those that were sent again.
    pub(crate) packets_per_second: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) completion_errors: u32,
    pub(crate) first_error: Option<String>,
    /// None: the driver does not count them.
    pub(crate) rnr_naks: Option<u64>,
    pub(crate) retransmits: Option<u64>,
    pub(crate) phy_bytes: Option<u64>,
    /// Datagrams that did not arrive; none of what is reliable.
    #[serde(default)]
    pub(crate) lost: Option<u64>,
    /// Which of the sender's counters moved.
    pub(crate) counters: BTreeMap<String, u64>,
}

/// A port's counters before and after.
#[derive(Debug)]
pub(crate) struct Counted<'a> {
    pub before: &'a BTreeMap<String, u64>,
    pub after: &'a BTreeMap<String, u64>,
}

impl Counted<'_> {
    /// Those that moved, without the hundreds that drivers keep of each queue.
    fn moved(&self) -> BTreeMap<String, u64> {
        let mut moved = counters::moved(self.before, self.after);
        let telling = |name: &str| counters::sign(name).is_some() || name.ends_with("_phy");
        moved.retain(|name, _| telling(name) || !name.starts_with("ethtool "));
        moved
    }

    /// The sum of those that the driver has; none of them is not zero.
    fn sum(&self, names: &[&str]) -> Option<u64> {
        let deltas = names.iter().filter_map(|name| {
            let (before, after) = (self.before.get(*name)?, self.after.get(*name)?);
            counters::delta(*before, *after)
        });
        deltas.fold(None, |sum, delta| Some(sum.unwrap_or(0) + delta))
    }
}

impl Cell {
    pub(crate) fn new(
        step: &Step,
        flow: Flow,
        mtu: usize,
        outcome: &FlowOutcome,
        counted: &Counted<'_>,
    ) -> Self {
        let FlowOutcome { messages, took, latencies, errors, first_error, .. } = outcome;
        let valid = first_error.is_none() && *messages > 0 && *took > 0.0;
        let number = |value: f64| Some(value).filter(|_| valid);
        let rate = *messages as f64 / took.max(f64::MIN_POSITIVE);
        let us = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e3;
        let timed = !latencies.is_empty();
        let packets = step.size.div_ceil(mtu.max(1));
        Self {
            sweep: Some(step.sweep),
            from: flow.from,
            to: flow.to,
            rail: flow.rail,
            size: step.size,
            target_gbps: step.target,
            repeat: step.repeat,
            valid,
            messages: *messages,
            seconds: number(*took),
            gbps: number(rate * step.size as f64 * 8e-9),
            messages_per_second: number(rate),
            packets_per_second: number(rate * packets as f64),
            p50_us: number(us(0.5)).filter(|_| timed),
            p99_us: number(us(0.99)).filter(|_| timed),
            completion_errors: *errors,
            first_error: first_error.clone(),
            rnr_naks: counted.sum(RNR_NAKS),
            retransmits: counted.sum(RETRANSMITS),
            phy_bytes: counted.sum(PHY_BYTES),
            lost: outcome.lost,
            counters: counted.moved(),
        }
    }

    /// Of a path that is not measured any more.
    pub(crate) fn paused(step: &Step, flow: Flow, why: &str) -> Self {
        Self {
            sweep: Some(step.sweep),
            from: flow.from,
            to: flow.to,
            rail: flow.rail,
            size: step.size,
            target_gbps: step.target,
            repeat: step.repeat,
            first_error: Some(why.to_owned()),
            ..Self::default()
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("rank {} to {}, rail {}", self.from, self.to, self.rail)
    }

    /// What explains a bad cell: an error, or counters of drops and the like that moved.
    pub(crate) fn causes(&self) -> Vec<String> {
        let moved = self.counters.iter().filter(|(name, _)| counters::sign(name).is_some());
        let moved = moved.map(|(name, delta)| format!("{name} rose by {delta}"));
        self.first_error.iter().cloned().chain(moved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::BenchOptions;
    use crate::bench::options::By;
    use crate::bench::plan::Shape;
    use crate::bench::plan::plan;
    use crate::explain::Sign;

    /// A name with a typing error counts nothing, for ever.
    #[test]
    fn what_is_counted_has_a_meaning_of_the_same_kind() {
        for (names, sign) in [(RNR_NAKS, Sign::Unready), (RETRANSMITS, Sign::Loss)] {
            for name in names.iter().filter(|name| **name != "RnrNakRecv") {
                assert_eq!(counters::sign(name), Some(sign), "{name}");
            }
        }
        let before = BTreeMap::from([("tx_rdma_retx_pkts".to_owned(), 1)]);
        let after = BTreeMap::from([("tx_rdma_retx_pkts".to_owned(), 8)]);
        let counted = Counted { before: &before, after: &after };
        assert_eq!((counted.sum(RETRANSMITS), counted.sum(RNR_NAKS)), (Some(7), None));
    }

    #[test]
    fn what_failed_has_no_numbers_and_what_is_not_counted_is_not_zero() {
        let shape = Shape { ranks: 2, rates: vec![None] };
        let options = BenchOptions {
            sweeps: vec![Sweep::Sizes],
            sizes: vec![5000],
            ..BenchOptions::default()
        };
        let steps = plan(&options, &shape).unwrap().steps;
        let flow = Flow { from: 0, to: 1, rail: 0 };
        let before = BTreeMap::from([("rcvd_rnr_err".to_owned(), 1), ("sent_pkts".to_owned(), 5)]);
        let after = BTreeMap::from([("rcvd_rnr_err".to_owned(), 4), ("sent_pkts".to_owned(), 5)]);
        let counted = Counted { before: &before, after: &after };
        let mut outcome = FlowOutcome {
            messages: 100,
            lost: None,
            took: 0.5,
            latencies: hdrhistogram::Histogram::new(3).unwrap(),
            errors: 0,
            first_error: None,
            broken: false,
        };
        outcome.latencies.record(2000).unwrap();
        let cell = Cell::new(&steps[0], flow, 1024, &outcome, &counted);
        assert_eq!((cell.gbps, cell.messages_per_second), (Some(0.008), Some(200.0)));
        // Five packets carry 5,000 bytes.
        assert_eq!((cell.packets_per_second, cell.p50_us), (Some(1000.0), Some(2.0)));
        assert_eq!((cell.rnr_naks, cell.retransmits), (Some(3), None));
        assert_eq!(cell.causes(), ["rcvd_rnr_err rose by 3"]);
        assert_eq!(cell.counters.len(), 1);
        outcome.first_error = Some("RETRY_EXC_ERR".to_owned());
        let failed = Cell::new(&steps[0], flow, 1024, &outcome, &counted);
        assert!(!failed.valid && failed.gbps.is_none() && failed.p99_us.is_none());
        assert_eq!(BenchOptions::default().by, By::Write);
    }
}
