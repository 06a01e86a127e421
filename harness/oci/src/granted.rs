//! The grant of a container: the part of its wish that the container gets.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use verbgate_sandbox::grant;
use verbgate_sandbox::grant::Granted;
use verbgate_sandbox::grant::Host;
use verbgate_sys::sandbox;

use crate::wish;
use crate::wish::Wish;

/// The nodes of what is wished for.
pub(super) fn granted(
    wish: &Wish,
    stand_in: &[OsString],
    config: &Value,
) -> Result<Vec<Granted>, Error> {
    let mut nodes: Vec<Granted> = Vec::new();
    for (name, field) in &wish.devices {
        let of_name = |option: &&OsString| {
            option.to_str().and_then(|text| text.split_once('=')).is_some_and(|(n, _)| n == name)
        };
        let options = match stand_in.iter().find(of_name) {
            Some(stand_in) => vec![stand_in.clone()],
            // Without any, all of the host's.
            None if name == wish::ALL && !stand_in.is_empty() => stand_in.to_vec(),
            None => vec![name.into()],
        };
        let found = grant::resolve(&options, Host::real()).map_err(|e| match *field {
            annotation @ (wish::DEVICES | wish::GRANTED) => anyhow!("annotation {annotation}: {e}"),
            field => anyhow!("{field}: {e}"),
        })?;
        nodes.extend(found.into_iter().filter(|node| !nodes.contains(node)).collect::<Vec<_>>());
    }
    if nodes.is_empty() {
        let field = wish.devices.first().map_or(wish::DEVICES, |(_, field)| *field);
        return Err(anyhow!("{field}: this host has no RDMA device to grant"));
    }
    agree_on_numbers(&nodes, config)?;
    if wish.cm {
        nodes.extend(grant::connection_manager(Host::real()));
    }
    Ok(nodes)
}

/// A device that is listed with another number than the host's of that name is another device.
fn agree_on_numbers(nodes: &[Granted], config: &Value) -> Result<(), Error> {
    let listed = config.pointer("/linux/devices").and_then(Value::as_array);
    for device in listed.into_iter().flatten() {
        let number =
            |key: &str| device.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let path = device.get("path").and_then(Value::as_str).unwrap_or_default();
        let name = Path::new(path).file_name().unwrap_or_default();
        let node =
            nodes.iter().find(|node| path.starts_with(sandbox::RDMA_DIR) && *node.name == *name);
        if let (Some(node), Some(major), Some(minor)) = (node, number("major"), number("minor"))
            && node.rdev != (major, minor)
        {
            let (of_host, minor_of_host) = node.rdev;
            return Err(anyhow!(
                "linux.devices: {path} is listed as {major}:{minor}, but this host's {} is \
                 {of_host}:{minor_of_host}; have the engine list the host's own",
                node.name
            ));
        }
    }
    Ok(())
}

/// A container's own wish may narrow what the operator allows, and `hpc` is no more than that.
pub(super) fn profile(wished: Option<&str>, allowed: &str) -> Result<String, Error> {
    match wished {
        None => Ok(allowed.to_owned()),
        Some(name) if name == allowed || name == "standard" => Ok(name.to_owned()),
        Some("hpc") if allowed == "full" => Ok("hpc".to_owned()),
        Some(name) => Err(anyhow!(
            "annotation {}: the profile {name:?} is not allowed here; the runtime's option \
             --profile allows {allowed:?}",
            wish::PROFILE
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_no_more_than_the_operator_allows() {
        assert_eq!(profile(None, "hpc").unwrap(), "hpc");
        assert_eq!(profile(Some("standard"), "full").unwrap(), "standard");
        assert_eq!(profile(Some("hpc"), "full").unwrap(), "hpc");
        for (wished, allowed) in [("hpc", "standard"), ("full", "hpc"), ("nonsense", "full")] {
            let error = profile(Some(wished), allowed).unwrap_err().to_string();
            assert!(error.contains(wished) && error.contains(wish::PROFILE), "{error}");
        }
    }
}
