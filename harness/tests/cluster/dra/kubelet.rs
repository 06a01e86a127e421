//! A kubelet's part in claims: gRPC, which is HTTP/2, by curl.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use prost::Message;
use tempfile::TempDir;

// Of the kubelet's api.proto files.

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claims {
    #[prost(message, repeated, tag = "1")]
    pub(crate) claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claim {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Prepared {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, One>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct One {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Device>,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Device {
    #[prost(string, repeated, tag = "1")]
    pub(crate) requests: Vec<String>,
    #[prost(string, tag = "2")]
    pub(crate) pool: String,
    #[prost(string, tag = "3")]
    pub(crate) device: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) cdi: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unprepared {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, Undone>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Undone {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Info {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) versions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(bool, tag = "1")]
    pub(crate) registered: bool,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

/// One request of a kubelet; the body of the answer, or the status with which it failed.
pub(crate) fn ask<A: Message + Default>(
    socket: &Path,
    method: &str,
    request: &impl Message,
) -> Result<A, String> {
    let dir = TempDir::new().unwrap();
    let file = |name| dir.path().join(name);
    // Not compressed; the length follows in four bytes.
    let mut body = vec![0];
    body.extend(u32::try_from(request.encoded_len()).unwrap().to_be_bytes());
    request.encode(&mut body).unwrap();
    fs::write(file("request"), body).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--disable", "--silent", "--show-error", "--http2-prior-knowledge"]);
    curl.args(["--noproxy", "*", "--max-time", "30", "--unix-socket"]).arg(socket);
    curl.args(["--header", "content-type: application/grpc", "--header", "te: trailers"]);
    curl.arg("--data-binary").arg(format!("@{}", file("request").display()));
    curl.arg("--dump-header").arg(file("head")).arg("--output").arg(file("answer"));
    let output = curl.arg(format!("http://kubelet/{method}")).output().unwrap();
    let head = fs::read_to_string(file("head")).unwrap_or_default();
    let field = |name: &str| head.lines().rev().find_map(|line| line.strip_prefix(name));
    match field("grpc-status: ").map(str::trim) {
        Some("0") => Ok(A::decode(fs::read(file("answer")).unwrap().get(5..).unwrap()).unwrap()),
        Some(code) => Err(code.to_owned()),
        None => panic!("{method} is not answered: {output:?} {head}"),
    }
}
