//! Names and paths of sysfs.

use std::cmp::Ordering;

/// `NAME_MAX`.
const NAME_MAX: usize = 255;
/// `PATH_MAX` less the mount point.
const PATH_MAX: usize = 3500;

/// Whether a file of sysfs can be called so: what PCI addresses, drivers, interfaces and
/// attributes are made of, and no way out of a directory.
pub(crate) fn is_name(name: &str) -> bool {
    let begins = name.as_bytes().first().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    begins
        && name.len() <= NAME_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:+@,=-".contains(&b))
}

/// Whether every component is a name.
pub(crate) fn is_path(path: &str) -> bool {
    path.len() <= PATH_MAX && path.split('/').all(is_name)
}

/// The last component.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The directory; none for a first component.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// Whether `path` is below `dir`, at any depth.
pub(crate) fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// The directories above a path, the nearest first.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

/// The target of a symbolic link as the kernel writes it (`kernfs_get_target_path`,
/// fs/kernfs/symlink.c): up to the deepest directory that is above both, then down.
///
/// What is above a target does not include the target: a link from within a device to that device
/// goes up beyond it and names it.
pub(crate) fn relative(link: &str, target: &str) -> String {
    let base = parent(link).unwrap_or_default();
    let target_dir = parent(target).unwrap_or_default();
    let common = base
        .split('/')
        .zip(target_dir.split('/'))
        .take_while(|(a, b)| a == b && !a.is_empty())
        .count();
    let up = base.split('/').filter(|c| !c.is_empty()).count() - common;
    let down: Vec<&str> = target.split('/').skip(common).collect();
    "../".repeat(up) + &down.join("/")
}

/// Where a relative link leads; `None` when it leaves the root.
pub(crate) fn follow(link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut path: Vec<&str> = parent(link).unwrap_or_default().split('/').collect();
    path.retain(|c| !c.is_empty());
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." => drop(path.pop()?),
            name => path.push(name),
        }
    }
    Some(path.join("/"))
}

/// Orders numbers within names by their value, so that `mlx5_2` comes before `mlx5_10`, as the
/// kernel made them. Addresses, which are hexadecimal and of fixed width, come last and as text.
///
/// Every list of devices is in this order: two lists in two orders pair the wrong NICs.
pub fn natural(a: &str, b: &str) -> Ordering {
    match (a.contains(':'), b.contains(':')) {
        (false, false) => by_value(a, b),
        (true, true) => a.cmp(b),
        (one, other) => one.cmp(&other),
    }
}

/// A name that compares as [`natural`] has it, for maps and sort keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Natural(pub String);

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        natural(&self.0, &other.0)
    }
}

fn by_value(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (m, rest_left) = number(left);
            let (n, rest_right) = number(right);
            // Without leading zeros, the longer number is the greater one.
            let order = m.len().cmp(&n.len()).then_with(|| m.cmp(n));
            if order.is_ne() {
                return order;
            }
            (left, right) = (rest_left, rest_right);
        } else if x == y {
            (left, right) = (left.get(1..).unwrap_or_default(), right.get(1..).unwrap_or_default());
        } else {
            return x.cmp(y);
        }
    }
    // `01` and `1` are different names.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The number that the text begins with, less its leading zeros, and the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    (digits.get(zeros..).unwrap_or_default(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_the_kernels() {
        let device = "devices/pci0000:07/0000:07:01.0/0000:0c:00.0";
        let ibdev = format!("{device}/infiniband/mlx5_0");
        assert_eq!(relative(&format!("{ibdev}/device"), device), "../../../0000:0c:00.0");
        assert_eq!(
            relative(&format!("{ibdev}/subsystem"), "class/infiniband"),
            "../../../../../../class/infiniband"
        );
        assert_eq!(relative("class/infiniband/mlx5_0", &ibdev), format!("../../{ibdev}"));
        assert_eq!(relative("bus/pci/devices/0000:0c:00.0", device), format!("../../../{device}"));
        for (link, target) in
            [(format!("{ibdev}/device"), device), ("class/net/x".to_owned(), &*ibdev)]
        {
            assert_eq!(follow(&link, &relative(&link, target)).as_deref(), Some(target));
        }
        assert_eq!(follow("class/x", "../../../etc"), None);
        assert_eq!(follow("class/x", "/etc"), None);
    }

    #[test]
    fn hostile_names_are_none() {
        for good in ["0000:0c:00.0", "pci10000:e0", "mlx5_core.sf.1", "soc@0", "__kernel"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "a\n", "-x", "\u{e9}", &*"x".repeat(256)] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(!is_path("devices/../../etc") && !is_path("/etc") && is_path("a/b"));
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let mut names = ["mlx5_10", "mlx5_9", "ens1", "mlx5_1", "mlx5_01", "mlx5"];
        names.sort_unstable_by(|a, b| natural(a, b));
        assert_eq!(names, ["ens1", "mlx5", "mlx5_01", "mlx5_1", "mlx5_9", "mlx5_10"]);
        let mut names = ["0000:10:00.0", "0000:0a:00.0", "power", "0000:1c:00.0", "0000:9a:00.0"];
        names.sort_unstable_by(|a, b| natural(a, b));
        let expected = ["power", "0000:0a:00.0", "0000:10:00.0", "0000:1c:00.0", "0000:9a:00.0"];
        assert_eq!(names, expected);
    }
}
