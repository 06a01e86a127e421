//! Rates, as policies write them.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::error::PolicyError;
use super::error::Source;
use super::text::ClassRateText;
use super::text::Exceed;
use super::text::TierText;
use crate::pace::ClassPace;
use crate::pace::Pace;
use crate::pace::Tier;
use crate::pace::VerbClass;
use crate::quota::Resource;

/// A rate that can be kept: the supervisor looks after requests that wait five times a second.
pub(super) fn pace(
    (per_s, burst, exceed): (u64, Option<u64>, Exceed),
    span: &Range<usize>,
    source: Source<'_>,
) -> Result<Pace, PolicyError> {
    let burst = burst.unwrap_or(per_s);
    let waits = exceed == Exceed::Wait;
    if per_s == 0 || burst == 0 {
        let slip = "per_s and burst are at least 1; remove the profile's methods to grant none";
        return Err(source.slip(span, slip));
    }
    if waits && burst < per_s.div_ceil(LOOKS) {
        let slip = format!(
            "with exceed = \"wait\", burst is at least a {LOOKS}th of per_s, {}: requests that wait \
             are looked after {LOOKS} times a second",
            per_s.div_ceil(LOOKS)
        );
        return Err(source.slip(span, slip));
    }
    Ok(Pace { per_s, burst, waits })
}

/// A rate of a class, whose slower rates are reached one after the other.
pub(super) fn class_pace(
    class: VerbClass,
    rate: &Spanned<ClassRateText>,
    quota: &BTreeMap<Resource, u64>,
    source: Source<'_>,
) -> Result<ClassPace, PolicyError> {
    let ClassRateText { per_s, burst, exceed, warm, hot } = *rate.get_ref();
    let slip = |slip: String| source.slip(&rate.span(), slip);
    let cold = pace((per_s, burst, exceed), &rate.span(), source)?;
    let tier = |text: TierText| Tier { from: text.from, per_s: text.per_s };
    let (warm, hot) = (warm.map(tier), hot.map(tier));
    let mut before = Tier { from: 0, per_s };
    for (name, tier) in [("warm", warm), ("hot", hot)] {
        let Some(tier) = tier else { continue };
        if !(1..=100).contains(&tier.from) || tier.from <= before.from {
            return Err(slip(format!("{name}.from is a percentage, and more than that of warm")));
        }
        if tier.per_s == 0 || tier.per_s > before.per_s {
            return Err(slip(format!(
                "{name}.per_s is at least 1, and no more than the rate before"
            )));
        }
        if !class.resources().iter().any(|resource| quota.contains_key(resource)) {
            let names: Vec<&str> = class.resources().iter().map(|one| one.name()).collect();
            return Err(slip(format!(
                "{name} is a part of a quota, and there is none of {}; add quota.{}",
                names.join(" or "),
                names.first().unwrap_or(&"?")
            )));
        }
        before = tier;
    }
    Ok(ClassPace { cold, warm, hot })
}

pub(super) fn words(Pace { per_s, burst, waits }: &Pace) -> String {
    let exceed = if *waits { "wait" } else { "EAGAIN" };
    format!("per_s = {per_s}, burst = {burst}, exceed = {exceed:?}")
}

/// How often requests that wait are looked after, in a second.
const LOOKS: u64 = 5;
