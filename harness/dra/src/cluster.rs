//! Requests to the cluster's API server.
//!
//! curl(1) makes the connection, as in the chart's script: no library for TLS is linked into a program that serves
//! guests. The account's token goes to curl by standard input, because every process of the node can read arguments.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use serde_json::Value;

/// The group of the API.
pub(crate) const GROUP: &str = "resource.k8s.io";
/// Its versions, the newest first; all have the same claims, and [`crate::slice`] knows their slices.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];
/// Seconds that a request may take: the kubelet waits for an answer about a claim.
const PATIENCE: &str = "20";
/// Longest answer that is taken, in bytes. A claim's is a few kilobytes.
const ANSWER_MAX: &str = "8388608";

/// Why the cluster could not be asked, or has refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(
        "the address of the cluster's API server is missing: KUBERNETES_SERVICE_HOST is set in pods only; run the driver \
         by the chart, or give --server"
    )]
    NoServer,
    #[error("--server {0}: must begin with https:// or http://, without quotes or spaces")]
    Server(String),
    #[error("cannot read the account's token {}: {why}; run the driver by the chart, or give --account", .path.display())]
    Token { path: PathBuf, why: std::io::Error },
    #[error("cannot run curl, which speaks to the API server: {0}; install curl")]
    Curl(std::io::Error),
    #[error("the API server {server} cannot be reached: {said}")]
    Unreachable { server: String, said: String },
    #[error("the API server refuses {verb} {path}: {status} {said}{}", remedy(*.status))]
    Refused { verb: &'static str, path: String, status: u16, said: String },
    #[error("the API server's answer to {verb} {path} is no JSON: {why}; is --server right?")]
    Answer { verb: &'static str, path: String, why: serde_json::Error },
    #[error(
        "the cluster serves no {GROUP} that is known here ({}); Dynamic Resource Allocation needs Kubernetes 1.34, or 1.32 \
         with the feature gate DynamicResourceAllocation and --runtime-config={GROUP}/v1beta1=true", .0
    )]
    NoDra(String),
}

fn remedy(status: u16) -> &'static str {
    match status {
        401 => "; the account's token is not valid",
        403 => "; the account needs the chart's ClusterRole (--set dra=v1)",
        _ => "",
    }
}

impl ClusterError {
    /// Whether the object is not there.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// The API server, and who asks.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    server: String,
    account: PathBuf,
}

impl Cluster {
    /// The cluster of a server's address, or the one that this pod is in.
    pub(crate) fn of(server: Option<&str>, account: PathBuf) -> Result<Self, ClusterError> {
        let of_pod = || {
            let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
            let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".into());
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            Some(format!("https://{host}:{port}"))
        };
        let server = server.map(str::to_owned).or_else(of_pod).ok_or(ClusterError::NoServer)?;
        let known = server.starts_with("https://") || server.starts_with("http://");
        let odd = |c: char| c.is_whitespace() || c.is_control() || "\"\\".contains(c);
        if !known || server.contains(odd) {
            return Err(ClusterError::Server(server));
        }
        Ok(Self { server: server.trim_end_matches('/').to_owned(), account })
    }

    /// The newest version of the API that the cluster serves and this driver knows.
    pub(crate) fn version(&self) -> Result<&'static str, ClusterError> {
        let group = match self.get(&format!("/apis/{GROUP}")) {
            Err(error) if error.is_absent() => {
                return Err(ClusterError::NoDra("none at all".into()));
            }
            other => other?,
        };
        let served: Vec<&str> = group
            .get("versions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|version| version.get("version")?.as_str())
            .collect();
        let known = VERSIONS.into_iter().find(|version| served.contains(version));
        known.ok_or_else(|| ClusterError::NoDra(format!("but {}", served.join(", "))))
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, ClusterError> {
        self.ask("GET", path, None)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Value, ClusterError> {
        self.ask("DELETE", path, None)
    }

    /// Makes an object, or makes it what is said (server-side apply).
    pub(crate) fn apply(&self, path: &str, object: &Value) -> Result<Value, ClusterError> {
        self.ask("PATCH", &format!("{path}?fieldManager=verbgate&force=true"), Some(object))
    }

    fn ask(
        &self,
        verb: &'static str,
        path: &str,
        object: Option<&Value>,
    ) -> Result<Value, ClusterError> {
        let mut words = vec![
            ("url", format!("{}{path}", self.server)),
            ("request", verb.to_owned()),
            ("max-time", PATIENCE.to_owned()),
            ("max-filesize", ANSWER_MAX.to_owned()),
            ("write-out", "\n%{http_code}".to_owned()),
        ];
        // Nobody is told the token who does not prove to be the server.
        if self.server.starts_with("https://") {
            let path = self.account.join("token");
            let token =
                std::fs::read_to_string(&path).map_err(|why| ClusterError::Token { path, why })?;
            words.push(("header", format!("Authorization: Bearer {}", token.trim())));
            words.push(("cacert", self.account.join("ca.crt").display().to_string()));
        }
        if let Some(object) = object {
            // JSON is YAML.
            words.push(("header", "Content-Type: application/apply-patch+yaml".to_owned()));
            words.push(("data-raw", object.to_string()));
        }
        let said = self.curl(&words)?;
        let (body, status) = said.rsplit_once('\n').unwrap_or(("", &said));
        let status: u16 = status.parse().unwrap_or(0);
        let answer: Result<Value, _> = serde_json::from_str(body);
        if !(200..300).contains(&status) {
            let said =
                answer.ok().and_then(|answer| Some(answer.get("message")?.as_str()?.to_owned()));
            let path = path.to_owned();
            return Err(ClusterError::Refused {
                verb,
                path,
                status,
                said: said.unwrap_or_default(),
            });
        }
        answer.map_err(|why| ClusterError::Answer { verb, path: path.to_owned(), why })
    }

    fn curl(&self, words: &[(&str, String)]) -> Result<String, ClusterError> {
        // What a user has put into ~/.curlrc is not for this connection.
        let mut child = Command::new("curl")
            .args(["-q", "--silent", "--show-error", "--config", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ClusterError::Curl)?;
        let config: String =
            words.iter().map(|(name, value)| format!("{name} = {}\n", quoted(value))).collect();
        if let Some(mut stdin) = child.stdin.take() {
            // A curl that has ended already says why.
            let _ = stdin.write_all(config.as_bytes());
        }
        let output = child.wait_with_output().map_err(ClusterError::Curl)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', ", ");
            return Err(ClusterError::Unreachable { server: self.server.clone(), said });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A value in a file of curl's options: curl(1), `--config`.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"))
}

/// Whether a text can be a part of a path: what Kubernetes calls names and namespaces.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(fits) && !text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curl_reads_back_what_is_quoted() {
        let text = "a \"b\" \\n c\nd\te\\";
        let output = quoted(text);
        assert_eq!(output, "\"a \\\"b\\\" \\\\n c\\nd\\te\\\\\"");
        assert!(!output.contains('\n'));
    }

    #[test]
    fn no_name_leads_elsewhere() {
        for name in ["ml", "a-b.c", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "..", "a/b", "a?b", "a%2f", "A", "a b", &"a".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_told_with_its_address() {
        let account = PathBuf::from("/nonexistent");
        for odd in ["ftp://x", "https://x y", "https://x\"\nurl = \"file:///etc/shadow"] {
            let error = Cluster::of(Some(odd), account.clone()).unwrap_err().to_string();
            assert!(error.contains("--server"), "{error}");
        }
        let secret = Cluster::of(Some("https://127.0.0.1:1"), account.clone()).unwrap();
        let error = secret.version().unwrap_err().to_string();
        assert!(error.contains("/nonexistent/token") && error.contains("--account"), "{error}");
        let error = Cluster::of(Some("http://127.0.0.1:1"), account).unwrap().version();
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("127.0.0.1:1 cannot be reached") || error.contains("install curl"),
            "{error}"
        );
    }
}
