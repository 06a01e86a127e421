//! NCCL's filter of RDMA devices, `NCCL_IB_HCA`, read exactly as NCCL reads the filter. Any other
//! reading would move other NICs than NCCL then uses.
//!
//! `[^][=]NAME[:PORT[:RAIL[:PLANE]]],...`: without `=` a name matches every device that begins with it
//! (mlx5_1 also mlx5_10), `^` excludes; both stand before the list and hold for all of it. An empty
//! port means all ports; rail and plane (NCCL 2.30) choose nothing. NCCL's documentation,
//! "NCCL_IB_HCA"; parseStringList and matchIfList of its src/misc/socket.cc.

use super::Error;

/// Number of entries that NCCL reads (`MAX_IF_NUM` of NCCL's sources).
pub(crate) const ENTRIES_MAX: usize = 32;

/// A parsed filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    exclude: bool,
    exact: bool,
    entries: Vec<(String, Option<u32>)>,
}

impl std::str::FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (exclude, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let mut entries = Vec::new();
        for entry in rest.split(',').filter(|entry| !entry.is_empty()) {
            let bad = || {
                let help = "write it as NCCL_IB_HCA, [^][=]NAME[:PORT[:RAIL[:PLANE]]],...";
                Error::Usage(format!("--hca: {entry:?} does not name an RDMA device; {help}"))
            };
            let mut fields = entry.split(':');
            let name = fields.next().unwrap_or_default();
            let port = match fields.next() {
                // All ports, before a rail; a colon alone is a slip of the pen.
                Some("") if entry.matches(':').count() > 1 => None,
                Some(port) => Some(port.parse().map_err(|_| bad())?),
                None => None,
            };
            // -1: no rail, no plane.
            let places: Vec<&str> = fields.collect();
            if places.len() > 2 || places.iter().any(|place| place.parse::<i32>().is_err()) {
                return Err(bad());
            }
            if name.is_empty() || name.starts_with(['^', '=']) {
                return Err(bad());
            }
            entries.push((name.to_owned(), port));
        }
        if entries.len() > ENTRIES_MAX {
            let help = format!("NCCL reads {ENTRIES_MAX}, {} are given", entries.len());
            return Err(Error::Usage(format!("--hca: too many devices: {help}")));
        }
        Ok(Self { exclude, exact, entries })
    }
}

impl Filter {
    /// Whether NCCL would use this port of this device.
    pub(crate) fn allows(&self, device: &str, port: u32) -> bool {
        let named = self.entries.iter().any(|(name, wanted)| {
            let same = if self.exact { device == name } else { device.starts_with(name.as_str()) };
            same && wanted.is_none_or(|wanted| wanted == port)
        });
        // An empty list matches everything, and so, with ^, excludes everything.
        (named || self.entries.is_empty()) != self.exclude
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(filter: &str) -> Vec<String> {
        let filter: Filter = filter.parse().unwrap();
        let all = ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11", "mlx4_0", "rxe0"];
        let ports = all.iter().flat_map(|name| [(*name, 1), (*name, 2)]);
        ports.filter(|(n, p)| filter.allows(n, *p)).map(|(n, p)| format!("{n}:{p}")).collect()
    }

    #[test]
    fn a_name_is_a_prefix() {
        let both = ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1", "mlx5_10:2", "mlx5_11:1", "mlx5_11:2"];
        assert_eq!(allowed("mlx5_1"), both);
        assert_eq!(allowed("mlx5_1:2"), ["mlx5_1:2", "mlx5_10:2", "mlx5_11:2"]);
    }

    #[test]
    fn the_equals_sign_makes_all_names_exact() {
        assert_eq!(allowed("=mlx5_1"), ["mlx5_1:1", "mlx5_1:2"]);
        assert_eq!(allowed("=mlx5_1:1,rxe0"), ["mlx5_1:1", "rxe0:1", "rxe0:2"]);
    }

    #[test]
    fn rail_and_plane_choose_nothing() {
        assert_eq!(allowed("=mlx5_0:1:0:0,mlx5_1:2:0:1"), ["mlx5_0:1", "mlx5_1:2"]);
        assert_eq!(allowed("=mlx5_0::3"), ["mlx5_0:1", "mlx5_0:2"]);
        assert_eq!(allowed("=rxe0:2:-1:-1"), ["rxe0:2"]);
    }

    #[test]
    fn the_caret_excludes_the_whole_list() {
        assert_eq!(allowed("^mlx5"), ["mlx4_0:1", "mlx4_0:2", "rxe0:1", "rxe0:2"]);
        assert_eq!(allowed("^=mlx5_1,mlx4,rxe0:2").len(), 9);
    }

    #[test]
    fn an_empty_filter_allows_all_and_its_contrary_nothing() {
        assert_eq!(allowed("").len(), 12);
        assert_eq!(allowed("^").len(), 0);
    }

    #[test]
    fn nonsense_is_named() {
        for bad in [
            ":1",
            "mlx5_0:x",
            "mlx5_0,^mlx5_1",
            "=mlx5_0,=mlx5_1",
            "mlx5_0:",
            "mlx5_0:1:",
            "mlx5_0:1:x",
            "mlx5_0:1:0:0:0",
        ] {
            let error = bad.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains("--hca"), "{bad}: {error}");
        }
    }
}
