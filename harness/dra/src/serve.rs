//! The driver's services by gRPC, on its Unix sockets.
//!
//! This is the one place with an async runtime: gRPC's library needs one. It runs in the process of `verbgate dra`,
//! which traces nobody and serves no guest; answers are made on threads that may block.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;

use anyhow::Context as _;
use anyhow::Error;
use prost::Message;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Request;
use tonic::Response;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::codegen::Context;
use tonic::codegen::Poll;
use tonic::codegen::Service;
use tonic::codegen::http;
use tonic::server::Grpc;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_prost::ProstCodec;

use crate::driver::Driver;
use crate::messages::Claims;
use crate::messages::Nothing;
use crate::messages::RegistrationStatus;

/// One answer, made on a thread that may block.
struct Answer<F>(F);

impl<M, R, F> Service<Request<M>> for Answer<F>
where
    F: Fn(M) -> Result<R, Status> + Clone + Send + 'static,
    M: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = Status;
    type Future = BoxFuture<Response<R>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let answer = self.0.clone();
        Box::pin(async move {
            let made = tokio::task::spawn_blocking(move || answer(request.into_inner())).await;
            made.map_err(|error| Status::internal(error.to_string()))?.map(Response::new)
        })
    }
}

type Answered = Result<http::Response<Body>, Infallible>;

async fn answer<M, R, F>(f: F, request: http::Request<Body>) -> Answered
where
    F: Fn(M) -> Result<R, Status> + Clone + Send + Sync + 'static,
    M: Message + Default + 'static,
    R: Message + Default + 'static,
{
    let codec: ProstCodec<R, M> = ProstCodec::default();
    Ok(Grpc::new(codec).unary(Answer(f), request).await)
}

async fn answered(driver: Arc<Driver>, request: http::Request<Body>) -> Answered {
    let path = request.uri().path().to_owned();
    match path.rsplit('/').next().unwrap_or_default() {
        "NodePrepareResources" => {
            answer(move |claims: Claims| Ok(driver.prepare(&claims)), request).await
        }
        "NodeUnprepareResources" => {
            answer(move |claims: Claims| Ok(driver.unprepare(&claims)), request).await
        }
        "GetInfo" => answer(move |_: Nothing| Ok(driver.info()), request).await,
        "NotifyRegistrationStatus" => {
            let notified = move |status: RegistrationStatus| {
                driver.notified(&status);
                Ok(Nothing {})
            };
            answer(notified, request).await
        }
        _ => {
            // The message is read nevertheless: some clients take an answer before its end for a broken connection.
            let unknown = move |_: Nothing| -> Result<Nothing, Status> {
                Err(Status::unimplemented(format!("{path}: not a request of the kubelet's")))
            };
            answer(unknown, request).await
        }
    }
}

/// The services: the kubelet's `dra/v1`, `dra/v1beta1` and `pluginregistration/v1`, by numbers from 0.
#[derive(Clone)]
struct Plugin<const AT: u8>(Arc<Driver>);

impl<const AT: u8> NamedService for Plugin<AT> {
    const NAME: &'static str = match AT {
        0 => "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
        1 => "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
        _ => "pluginregistration.Registration",
    };
}

impl<const AT: u8> Service<http::Request<Body>> for Plugin<AT> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(answered(Arc::clone(&self.0), request))
    }
}

/// Serves all services on each of the sockets, by a thread of their own.
pub(crate) fn start(driver: &Arc<Driver>, sockets: &[&Path]) -> Result<JoinHandle<()>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.context("cannot start the thread that answers the kubelet")?;
    let within = runtime.enter();
    let mut listeners = Vec::new();
    for path in sockets {
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on {}", path.display()))?;
        // The kubelet is root; nobody else asks.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot protect {}", path.display()))?;
        listeners.push(UnixListenerStream::new(listener));
    }
    drop(within);
    let routes = Server::builder()
        .add_service(Plugin::<0>(Arc::clone(driver)))
        .add_service(Plugin::<1>(Arc::clone(driver)))
        .add_service(Plugin::<2>(Arc::clone(driver)));
    let serving = thread::Builder::new().name("kubelet".to_owned()).spawn(move || {
        let served = async {
            let mut all = tokio::task::JoinSet::new();
            for listener in listeners {
                all.spawn(routes.clone().serve_with_incoming(listener));
            }
            all.join_next().await
        };
        if let Some(Ok(Err(error))) = runtime.block_on(served) {
            log::error!("cannot answer the kubelet: {error}");
        }
    });
    serving.context("cannot start the thread that answers the kubelet")
}
