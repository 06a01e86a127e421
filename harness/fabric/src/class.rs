//! The class of traffic: what a fabric tells lossless packets by, and the partition.

use std::fmt;

use crate::error::Error;
use crate::launch::Environment;

/// Traffic class, service level and partition of all queue pairs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub(crate) struct Class {
    /// `ibv_global_route.traffic_class`: the DSCP times 4, and the two bits of ECN.
    pub(crate) traffic: u8,
    /// `ibv_ah_attr.sl`: the priority of RoCE without IP, and the service level of InfiniBand.
    pub(crate) level: u8,
    /// The partition; none is that of index 0.
    pub(crate) pkey: Option<Partition>,
}

/// A partition, as people name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Partition {
    Key(u16),
    /// The place in each port's own table, as NCCL names it.
    Index(u16),
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "{key:#06x}"),
            Self::Index(index) => write!(f, "index {index}"),
        }
    }
}

/// A setting, by the names that libraries give it: NCCL and UCX (`env.rst`, `ucx_info -c`).
struct Setting {
    option: &'static str,
    names: &'static [&'static str],
    most: u64,
}

const TRAFFIC: Setting = Setting {
    option: "--traffic-class",
    names: &["NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS", "NVSHMEM_IB_TRAFFIC_CLASS"],
    most: 255,
};
const LEVEL: Setting =
    Setting { option: "--sl", names: &["NCCL_IB_SL", "UCX_IB_SL", "NVSHMEM_IB_SL"], most: 15 };
const PKEY: Setting = Setting { option: "--pkey", names: &["UCX_IB_PKEY"], most: 0xffff };
/// NCCL's default is 0, as that of a queue pair.
const PKEY_INDEX: Setting = Setting { option: "--pkey", names: &["NCCL_IB_PKEY"], most: 0xffff };

impl Setting {
    /// The option's value, or that of the first variable that is set.
    fn find(&self, given: Option<u64>, environment: Environment<'_>) -> Result<Option<u64>, Error> {
        let Self { option, names, most } = self;
        let wrong = |what: String| Err(Error::Usage(format!("{what}: give 0 to {most}")));
        if let Some(given) = given {
            return if given <= *most {
                Ok(Some(given))
            } else {
                wrong(format!("{option} {given}"))
            };
        }
        for name in *names {
            let Some(text) = environment(name).filter(|text| !text.is_empty()) else { continue };
            // UCX: `auto` is the driver's own, which is 0.
            if text.eq_ignore_ascii_case("auto") || text.eq_ignore_ascii_case("default") {
                return Ok(None);
            }
            return match number(&text).filter(|number| number <= most) {
                Some(number) => Ok(Some(number)),
                None => wrong(format!("${name} is {text:?}, and {option} is not given")),
            };
        }
        Ok(None)
    }
}

/// Decimal, or hexadecimal behind `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Class {
    /// As the options say, or else as NCCL and UCX are told.
    pub(crate) fn find(
        (traffic, level, pkey): (Option<u8>, Option<u8>, Option<u16>),
        environment: Environment<'_>,
    ) -> Result<Self, Error> {
        let traffic = TRAFFIC.find(traffic.map(u64::from), environment)?.unwrap_or(0);
        let level = LEVEL.find(level.map(u64::from), environment)?.unwrap_or(0);
        let narrow = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let key = PKEY.find(pkey.map(u64::from), environment)?;
        let index =
            || Ok::<_, Error>(PKEY_INDEX.find(None, environment)?.filter(|index| *index > 0));
        let pkey = match key {
            Some(key) => Some(Partition::Key(narrow(key))),
            None => index()?.map(|index| Partition::Index(narrow(index))),
        };
        Ok(Self {
            traffic: u8::try_from(traffic).unwrap_or(u8::MAX),
            level: u8::try_from(level).unwrap_or(u8::MAX),
            pkey,
        })
    }

    /// What must be the same on all ranks; nothing, if all is as by default.
    pub(crate) fn text(self) -> String {
        let Self { traffic, level, pkey } = self;
        let mut text = String::new();
        if traffic != 0 {
            text += &format!(" --traffic-class {traffic}");
        }
        if level != 0 {
            text += &format!(" --sl {level}");
        }
        if let Some(pkey) = pkey {
            text += &format!(" --pkey {pkey}");
        }
        text
    }

    /// The DSCP that switches see.
    pub(crate) fn dscp(self) -> u8 {
        self.traffic >> 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(
        given: (Option<u8>, Option<u8>, Option<u16>),
        set: &[(&str, &str)],
    ) -> Result<Class, Error> {
        Class::find(given, &|name| {
            set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_class_is_that_of_the_job_unless_it_is_given() {
        let class = find((None, None, None), &[("NCCL_IB_TC", "236"), ("UCX_IB_SL", "3")]).unwrap();
        assert_eq!((class.traffic, class.dscp(), class.level, class.pkey), (236, 59, 3, None));
        assert_eq!(class.text(), " --traffic-class 236 --sl 3");
        let given = find((Some(106), None, Some(0x8001)), &[("NCCL_IB_TC", "236")]).unwrap();
        assert_eq!(given.text(), " --traffic-class 106 --pkey 0x8001");
        let by_default = find((None, None, None), &[("UCX_IB_TRAFFIC_CLASS", "auto")]).unwrap();
        assert_eq!((by_default, by_default.text()), (Class::default(), String::new()));
        let hex = find((None, None, None), &[("UCX_IB_PKEY", "0x7fff")]).unwrap();
        assert_eq!(hex.pkey, Some(Partition::Key(0x7fff)));
        let nccl = find((None, None, None), &[("NCCL_IB_PKEY", "3")]).unwrap();
        assert_eq!((nccl.pkey, &*nccl.text()), (Some(Partition::Index(3)), " --pkey index 3"));
        let both = [("NCCL_IB_PKEY", "3"), ("UCX_IB_PKEY", "0x8001")];
        assert_eq!(find((None, None, None), &both).unwrap().pkey, Some(Partition::Key(0x8001)));
        assert_eq!(find((None, None, None), &[("NCCL_IB_PKEY", "0")]).unwrap().pkey, None);
        assert!(find((None, None, None), &[("NCCL_IB_PKEY", "-1")]).is_err());
        for (name, value) in [("NCCL_IB_TC", "256"), ("NCCL_IB_SL", "high"), ("UCX_IB_SL", "16")] {
            let error = find((None, None, None), &[(name, value)]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(&format!("${name} is {value:?}")), "{error}");
        }
        assert!(find((None, Some(16), None), &[]).unwrap_err().to_string().contains("--sl 16"));
    }
}
