//! What the ports of all ranks have in common: rates, and the longest messages.

use verbgate_verbs::Transport;

use crate::bench::options::BenchOptions;
use crate::bench::plan;
use crate::bench::plan::Shape;
use crate::error::Error;
use crate::rail::Rail;
use crate::rendezvous::Table;

/// What all ranks know alike.
pub(super) fn shape(ranks: u32, table: &Table) -> Shape {
    Shape { ranks, rates: rates(table, |rail| plan::rate(&rail.rate)) }
}

/// Of each rail the least of all ranks; none, if one of them does not tell.
fn rates(table: &Table, of: impl Fn(&Rail) -> Option<f64>) -> Vec<Option<f64>> {
    let rails = table.entries.first().map_or(0, |entry| entry.rails.len());
    let rate = |rail: usize| {
        let rates = table.entries.iter().filter_map(|entry| entry.rails.get(rail));
        let rates = rates.filter(|rail| rail.fault.is_none()).map(&of);
        rates.reduce(|a, b| Some(a?.min(b?))).flatten()
    };
    (0..rails).map(rate).collect()
}

/// Rates that are a wire's: that of a software device says nothing.
pub(super) fn wire_rates(table: &Table) -> Vec<Option<f64>> {
    rates(table, |rail| plan::rate(&rail.rate).filter(|_| !rail.software))
}

/// The longest datagram that all ports take, in bytes.
pub(super) fn datagram(table: &Table) -> usize {
    let rails = table.entries.iter().flat_map(|entry| &entry.rails);
    rails.filter(|rail| rail.fault.is_none()).map(Rail::datagram).min().unwrap_or(usize::MAX)
}

/// Whether all ports take messages of the longest size.
pub(super) fn fits(args: &BenchOptions, table: &Table) -> Result<(), Error> {
    // What the port tells is the longest send, and of RDMA without a connection nothing.
    if args.common.transport != Transport::Rc {
        return Ok(());
    }
    let longest = args.sizes.iter().copied().chain([args.message]).max().unwrap_or(0);
    for entry in &table.entries {
        for rail in &entry.rails {
            let most = usize::try_from(rail.max_message).unwrap_or(usize::MAX);
            if most != 0 && longest > most {
                return Err(Error::Usage(format!(
                    "{} of rank {} takes messages of at most {most} bytes: give smaller --sizes and \
                     --message",
                    rail.device, entry.rank
                )));
            }
        }
    }
    Ok(())
}
