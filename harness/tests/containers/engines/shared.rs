//! A device plug-in of a kubelet, which gives one device raw to many pods, as shared device plug-ins for RDMA do.
//!
//! The kubelet of 1.20 calls plug-ins with a path for `:authority`, which libraries for HTTP/2 refuse (Kubernetes since
//! 1.26 does not). So the few frames that the kubelet needs are written here, and headers of requests are not read: a
//! request without fields asks for the list of devices, and one with fields for a device.

use std::collections::HashMap;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::thread;

use prost::Message;

use crate::engines::cri;
use crate::engines::pods::NODE;
use crate::engines::world::World;

/// By which pods ask for the device; a name of k8s-rdma-shared-dev-plugin's.
pub(crate) const RESOURCE: &str = "rdma/hca_shared_devices_a";
/// As many pods can have the device.
pub(crate) const SHARES: &str = "10";
/// What such a plug-in lets containers do with the node.
const PERMISSIONS: &str = "rwm";
const DIR: &str = "/var/lib/kubelet/device-plugins";
const ENDPOINT: &str = "rdma.sock";

// Of the kubelet's `deviceplugin/v1beta1/api.proto`.

#[derive(Clone, PartialEq, Message)]
struct Register {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    endpoint: String,
    #[prost(string, tag = "3")]
    resource: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// `ListAndWatchResponse`.
#[derive(Clone, PartialEq, Message)]
struct Devices {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
}

#[derive(Clone, PartialEq, Message)]
struct Device {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    health: String,
}

/// `AllocateRequest`: one of these for each container.
#[derive(Clone, PartialEq, Message)]
struct Allocate {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Nothing>,
}

/// `AllocateResponse`.
#[derive(Clone, PartialEq, Message)]
struct Allocated {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Given>,
}

#[derive(Clone, PartialEq, Message)]
struct Given {
    #[prost(message, repeated, tag = "3")]
    devices: Vec<Node>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, tag = "1")]
    inside: String,
    #[prost(string, tag = "2")]
    outside: String,
    #[prost(string, tag = "3")]
    permissions: String,
}

/// HTTP/2: what a client begins with, and the types and flags of frames (RFC 9113).
const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` and `content-type: application/grpc`; `grpc-status: 0` (RFC 7541).
const BEGINS: &[u8] = b"\x88\x0f\x10\x10application/grpc";
const ENDS: &[u8] = b"\x00\x0bgrpc-status\x010";
/// Of gRPC: not compressed, and the length.
const PREFIX: usize = 5;

fn frame(to: &mut UnixStream, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = len[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    to.write_all(&bytes)
}

fn answer(to: &mut UnixStream, stream: u32, message: &impl Message, last: bool) -> io::Result<()> {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
    message.encode(&mut bytes).unwrap();
    frame(to, HEADERS, END_HEADERS, stream, BEGINS)?;
    frame(to, DATA, 0, stream, &bytes)?;
    if last {
        frame(to, HEADERS, END_HEADERS | END_STREAM, stream, ENDS)?;
    }
    Ok(())
}

/// Serves the kubelet until the kubelet goes.
fn serve(mut kubelet: UnixStream) -> io::Result<()> {
    kubelet.read_exact(&mut [0; PREFACE])?;
    frame(&mut kubelet, SETTINGS, 0, 0, &[])?;
    let mut requests: HashMap<u32, Vec<u8>> = HashMap::new();
    loop {
        let mut header = [0_u8; 9];
        kubelet.read_exact(&mut header)?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let stream = u32::from_be_bytes(stream);
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        kubelet.read_exact(&mut payload)?;
        match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let echoed = if kind == PING { &*payload } else { &[] };
                frame(&mut kubelet, kind, ACK, 0, echoed)?;
            }
            DATA => {
                let request = requests.entry(stream).or_default();
                request.extend(payload);
                if flags & END_STREAM == 0 {
                    continue;
                }
                let request = requests.remove(&stream).unwrap();
                match &request[PREFIX..] {
                    [] => answer(&mut kubelet, stream, &devices(), false)?,
                    fields => answer(&mut kubelet, stream, &allocated(fields), true)?,
                }
            }
            _ => {}
        }
    }
}

/// The list never changes, so the call never ends.
fn devices() -> Devices {
    let device = |n: u32| Device { id: n.to_string(), health: "Healthy".to_owned() };
    Devices { devices: (0..SHARES.parse::<u32>().unwrap()).map(device).collect() }
}

fn allocated(request: &[u8]) -> Allocated {
    let node = Node {
        inside: NODE.to_owned(),
        outside: NODE.to_owned(),
        permissions: PERMISSIONS.to_owned(),
    };
    let asked = Allocate::decode(request).unwrap().containers.len();
    Allocated { containers: vec![Given { devices: vec![node] }; asked] }
}

/// Starts the plug-in, and tells the kubelet where the plug-in listens.
pub(crate) fn start(world: &World) {
    let listener = UnixListener::bind(world.path(&format!("{DIR}/{ENDPOINT}"))).unwrap();
    thread::spawn(move || {
        for kubelet in listener.incoming() {
            // It ends with the cluster.
            thread::spawn(|| serve(kubelet.unwrap()));
        }
    });
    let own = Register {
        version: "v1beta1".to_owned(),
        endpoint: ENDPOINT.to_owned(),
        resource: RESOURCE.to_owned(),
    };
    let kubelet = world.path(&format!("{DIR}/kubelet.sock"));
    cri::call::<Nothing>(&kubelet, "v1beta1.Registration/Register", &own).unwrap();
}
