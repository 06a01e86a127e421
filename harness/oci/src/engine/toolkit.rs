//! NVIDIA's container toolkit: `runtimes` in the toolkit's config.toml.
//!
//! `nvidia-container-runtime` edits a bundle, and executes the first of these runtimes that exists
//! (`internal/oci/runtime_low_level.go` of NVIDIA/nvidia-container-toolkit 1.20). Verbgate is to be that one: then
//! Verbgate judges the bundle that is executed. A file without a list, and no file, stand for runc and crun
//! (`api/config/v1/config.go`).

use std::env;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;
use toml_edit::Array;
use toml_edit::Decor;
use toml_edit::value;

use super::ask;
use super::ask::Program;
use super::ask::Trial;
use super::containerd::parse;
use super::containerd::table;
use super::names::PROGRAM;
use super::names::is_ours;
use super::shape::place;
use super::wanted::Engine;
use super::wanted::Wanted;
use crate::runtime;

/// The file that the GPU operator writes (`installDir` of its chart, by default).
const OF_OPERATOR: &str = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml";
/// Variable that tells the toolkit itself of another file.
const VARIABLE: &str = "NVIDIA_CTK_CONFIG_FILE_PATH";

const KEYS: [&str; 2] = ["nvidia-container-runtime", "runtimes"];
const DEFAULTS: [&str; 2] = ["runc", "crun"];

/// The files of the toolkits that this host has.
pub(super) fn files() -> Vec<PathBuf> {
    if let Some(file) = env::var_os(VARIABLE) {
        return vec![file.into()];
    }
    let mut files = [Engine::Nvidia.file(), OF_OPERATOR].map(PathBuf::from).to_vec();
    files.retain(|file| file.exists());
    if files.is_empty() && runtime::find(Some(PROGRAM.as_ref())).is_ok() {
        files.push(Engine::Nvidia.file().into());
    }
    files
}

fn list(text: &str) -> Option<Vec<String>> {
    let document = parse(text).ok()?;
    let all = KEYS.iter().try_fold(document.as_item(), |at, key| at.get(key))?.as_array()?;
    Some(all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect())
}

/// The runtime that NVIDIA's calls without Verbgate.
pub(super) fn low_level(text: Option<&str>) -> Option<String> {
    let all = text.and_then(list).unwrap_or_else(|| DEFAULTS.map(str::to_owned).to_vec());
    all.into_iter().find(|name| !is_ours(name) && runtime::find(Some(name.as_ref())).is_ok())
}

/// Whether NVIDIA's runtime calls Verbgate before others.
pub(super) fn calls_us(text: &str) -> bool {
    list(text).unwrap_or_default().first().is_some_and(|first| is_ours(first))
}

/// The file's text with Verbgate before the other runtimes, and what is to be said about that.
pub(super) fn configured(
    file: &Path,
    text: Option<&str>,
    wanted: &Wanted,
    program: Option<&Program>,
) -> Result<(String, Vec<String>), Error> {
    let called = wanted.called();
    // NVIDIA's runtime would go on to the next of the list, and say nothing.
    if !Path::new(&called).exists() {
        return Err(anyhow!(
            "{called} is missing; make the link: ln -s {} {called}",
            wanted.program
        ));
    }
    let after = with(text.unwrap_or_default(), Some(&called))?;
    if let Some(program) = program {
        let trial = Trial::beside(file, &after)?;
        let read = program.reads(VARIABLE, trial.path(), &["--version"]);
        read.map_err(|e| ask::in_place(e, &trial, file))?;
    }
    let mut notes = vec![format!(
        "NVIDIA's runtime calls {called} after its own changes, and {called} calls {}: containers of the runtimes nvidia, \
         nvidia-cdi and nvidia-legacy get RDMA through verbgate",
        wanted.wrapped
    )];
    if file == Path::new(OF_OPERATOR) {
        notes.push(format!(
            "the GPU operator writes {} anew when its pod starts: set toolkit.env in the operator's chart, too, \
             NVIDIA_CONTAINER_RUNTIME_RUNTIMES={called},{}",
            file.display(),
            wanted.wrapped
        ));
    }
    Ok((after, notes))
}

/// The text without Verbgate. A list that is missing, or becomes empty, is the toolkit's default.
pub(super) fn without(text: &str) -> Result<String, Error> {
    let document = parse(text)?;
    let list = KEYS.iter().try_fold(document.as_item(), |at, key| at.get(key));
    list.map_or_else(|| Ok(text.to_owned()), |_| with(text, None))
}

fn with(text: &str, first: Option<&str>) -> Result<String, Error> {
    let mut document = parse(text)?;
    let [section, key] = KEYS;
    let shape = |what| anyhow!("{}{what}; repair the file first", place(text, &KEYS));
    let section = table(document.as_table_mut(), section)?;
    let item = section.entry(key).or_insert_with(|| value(DEFAULTS.into_iter().collect::<Array>()));
    let list = item.as_array_mut().ok_or_else(|| shape("runtimes: must be an array"))?;
    if first.is_some() && list.get(0).and_then(toml_edit::Value::as_str) == first {
        return Ok(document.to_string());
    }
    let is_other = |one: &toml_edit::Value| !one.as_str().is_some_and(is_ours);
    let mut others: Vec<toml_edit::Value> =
        list.iter().filter(|one| is_other(one)).cloned().collect();
    // The white space before the first entry stays there.
    let decor = list.get(0).map(|was| was.decor().clone()).unwrap_or_default();
    if let Some(first) = first {
        let second = others.first_mut().map(toml_edit::Value::decor_mut);
        let is_bare = |decor: &&mut Decor| {
            decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().is_empty()
        };
        if let Some(second) = second.filter(is_bare) {
            second.set_prefix(" ");
        }
        others.insert(0, toml_edit::Value::from(first));
    }
    if others.is_empty() {
        section.remove(key);
        return Ok(document.to_string());
    }
    if let Some(first) = others.first_mut() {
        *first.decor_mut() = decor;
    }
    list.clear();
    others.into_iter().for_each(|one| list.push_formatted(one));
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as the package has them, and as a site may write them.
    const REAL: &str = "#accept-nvidia-visible-devices-as-volume-mounts = false\n\
                        [nvidia-container-cli]\nldconfig = \"@/sbin/ldconfig\" # of the host\n\n\
                        [nvidia-container-runtime]\nlog-level = \"info\"\nmode = \"auto\"\n\
                        runtimes = [\"runc\", \"crun\"]\n\n\
                        [nvidia-container-runtime.modes.cdi]\ndefault-kind = \"nvidia.com/gpu\"\n";
    const OURS: &str = "/usr/bin/verbgate-oci-runc";

    #[test]
    fn verbgate_is_the_first_of_the_runtimes() {
        let after = with(REAL, Some(OURS)).unwrap();
        let list = "runtimes = [\"/usr/bin/verbgate-oci-runc\", \"runc\", \"crun\"]\n";
        assert_eq!(after, REAL.replace("runtimes = [\"runc\", \"crun\"]\n", list));
        assert!(calls_us(&after) && !calls_us(REAL) && !calls_us(""));
        assert_eq!(with(&after, Some(OURS)).unwrap(), after);
        assert_eq!(without(&after).unwrap(), REAL);
        // Another path of ours takes the place of the first.
        let again = with(&after, Some("/opt/verbgate-oci-crun")).unwrap();
        assert!(again.contains("[\"/opt/verbgate-oci-crun\", \"runc\", \"crun\"]"), "{again}");
    }

    #[test]
    fn what_is_missing_is_the_toolkits_default() {
        for text in ["", "[nvidia-container-runtime]\nmode = \"cdi\"\n", "disable-require = true\n"]
        {
            let value: toml::Table = toml::from_str(&with(text, Some(OURS)).unwrap()).unwrap();
            let all = value["nvidia-container-runtime"]["runtimes"].as_array().unwrap();
            let all: Vec<&str> = all.iter().map(|one| one.as_str().unwrap()).collect();
            assert_eq!(all, [OURS, "runc", "crun"], "{text}");
        }
    }

    #[test]
    fn nothing_of_ours_is_left_behind() {
        let section = "[nvidia-container-runtime]\nmode = \"cdi\"\n";
        let alone = format!("{section}runtimes = [\"{OURS}\"]\n");
        for (text, after) in [("", ""), (section, section), (REAL, REAL), (&alone, section)] {
            assert_eq!(without(text).unwrap(), after);
        }
    }

    #[test]
    fn a_list_of_another_shape_is_refused_by_its_line() {
        let text = "[nvidia-container-runtime]\nruntimes = \"runc\"\n";
        let error = with(text, Some(OURS)).unwrap_err().to_string();
        assert_eq!(error, "line 2: runtimes: must be an array; repair the file first");
    }
}
