//! Claims of Dynamic Resource Allocation, with the CDI devices that `verbgate dra` gives a kubelet for them.

use verbgate_oci::claims;
use verbgate_oci::claims::Record;

use crate::engines::cri::Container;
use crate::engines::cri::Pod;
use crate::engines::image;
use crate::engines::pods::HANDLER;
use crate::engines::pods::Node;
use crate::engines::world::World;

const DEVICE: &str = "verbgate.org/rdma=mlx5_0";
/// Two tenants, by the namespace of a claim and by the word of the class.
const POLICY: &str = "version = 1\n\
    [tenant.ml]\nmatch.claim = \"ml/*\"\nprofile = \"hpc\"\ndevices = [{ name = \"*\" }]\n\
    [tenant.gold]\nmatch.claim_tenant = \"gold\"\nprofile = \"full\"\ndevices = [{ name = \"*\" }]\n";

#[test]
fn containerd_1_7_knows_the_tenant_of_a_claim() {
    let Some(mut node) = World::of("trixie").and_then(Node::of) else { return };
    node.world.write("/etc/verbgate/policy.d/10-claims.toml", POLICY.as_bytes());
    let host = node.world.path("/");
    let claim = |uid: &str, name: &str, tenant: Option<&str>, profiles: &[&str]| {
        let profiles = profiles.iter().map(|name| (*name).to_owned()).collect();
        let record = Record { claim: name.to_owned(), tenant: tenant.map(str::to_owned), profiles };
        claims::write(&host, uid, &record).unwrap()
    };
    let by_namespace = claim("u1", "ml/nics", None, &[]);
    let by_class = claim("u2", "web/nics", Some("gold"), &[]);
    let narrowed = claim("u3", "web/more", Some("gold"), &["full", "standard"]);
    let nobodys = claim("u4", "web/nics", None, &[]);

    let forges = ("cdi.k8s.io/forged", by_class.as_str());
    let pod = Pod::of("claims", &[forges]);
    let id = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    let run = |name: &str, cdi: &[&str]| {
        let container = Container::of(name, image::NAME, &["sleep", "1000"]);
        let container = cdi.iter().fold(container, |all, name| all.with_cdi(name));
        node.kubelet.run(&id, &pod, container)
    };
    for (name, cdi, tenant, profile) in [
        ("namespace", &[DEVICE, by_namespace.as_str()][..], "ml", "hpc"),
        ("class", &[&by_class, DEVICE], "gold", "full"),
        ("two", &[&by_class, DEVICE, &narrowed], "gold", "full and standard"),
    ] {
        let id = run(name, cdi).unwrap();
        let shown = node.world.supervised().into_iter().find(|one| one["id"] == id.as_str());
        let shown = shown.unwrap();
        assert_eq!((&shown["tenant"], &shown["profile"]), (&tenant.into(), &profile.into()));
    }
    // No claim; a claim of nobody's; one beside a tenant's; and what a pod says of itself.
    for (name, cdi) in [
        ("none", &[DEVICE][..]),
        ("nobody", &[DEVICE, &nobodys]),
        ("beside", &[DEVICE, &by_namespace, &nobodys]),
    ] {
        let why = run(name, cdi).unwrap_err();
        assert!(why.contains("no tenant") && !why.contains("gold"), "{name}: {why}");
    }
    // As the driver does when the last pod of a claim is gone: the engine knows the claim no more.
    claims::forget(&host, "u1").unwrap();
    let why = run("unprepared", &[DEVICE, &by_namespace]).unwrap_err();
    assert!(why.contains("uid-u1"), "{why}");
    node.kubelet.remove_pod(&id);
    node.world.assert_nothing_left();
    node.stop();
}
