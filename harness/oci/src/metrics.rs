//! The text that Prometheus reads: the numbers of each container, and the sums of each tenant.

use anyhow::Error;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::show::list;
use super::show::number;
use super::show::pairs;
use super::show::text;

/// A time series' labels.
type Labels = Vec<(&'static str, String)>;

/// The tenant of a container, where an operator's policy says.
fn tenant(one: &Value) -> Option<&str> {
    one.get("tenant").and_then(Value::as_str)
}

/// The labels of a container; those of a pod's container name the pod, too.
fn labels(one: &Value) -> Labels {
    let of_pod = [("namespace", "namespace"), ("pod", "name"), ("container", "container")];
    let of_pod = of_pod.into_iter().filter_map(|(label, key)| {
        let text = one.get("pod")?.get(key)?.as_str().filter(|text| !text.is_empty())?;
        Some((label, escaped(text)))
    });
    let of_tenant = tenant(one).map(|name| ("tenant", escaped(name)));
    let sandbox = ("sandbox", escaped(text(one, "id")));
    std::iter::once(sandbox).chain(of_tenant).chain(of_pod).collect()
}

/// A label's value, which the library writes as it is given.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Anything that is counted up.
trait Number: EncodeMetric + TypedMetric + Clone + Default + std::fmt::Debug + Send + Sync {
    fn add(&self, amount: u64);
}

impl Number for Counter {
    fn add(&self, amount: u64) {
        self.inc_by(amount);
    }
}

impl Number for Gauge {
    fn add(&self, amount: u64) {
        self.inc_by(i64::try_from(amount).unwrap_or(i64::MAX));
    }
}

/// A number of each container, `verbgate_KEY`, and the sum of a tenant's, `verbgate_tenant_KEY`.
struct Numbers<N> {
    each: Family<Labels, N>,
    sums: Family<Labels, N>,
}

impl<N: Number + 'static> Numbers<N> {
    fn new(registry: &mut Registry, key: &str, help: &str) -> Self {
        let numbers = Self { each: Family::default(), sums: Family::default() };
        registry.register(key, help, numbers.each.clone());
        let help = format!("{help}: the sum of the tenant's containers");
        registry.register(format!("tenant_{key}"), help, numbers.sums.clone());
        numbers
    }

    fn add(&self, one: &Value, more: &[(&'static str, String)], amount: u64) {
        self.each.get_or_create(&[labels(one), more.to_vec()].concat()).add(amount);
        if let Some(tenant) = tenant(one) {
            let of = vec![("tenant", escaped(tenant))];
            self.sums.get_or_create(&[of, more.to_vec()].concat()).add(amount);
        }
    }
}

/// Counters of supervisors, by their key.
const COUNTERS: &[(&str, &str)] = &[
    ("executed", "Requests that the kernel executed"),
    ("failed", "Requests that the kernel refused"),
    ("opened", "Devices opened"),
    ("planted", "Stubs planted"),
    ("notifications", "System calls trapped"),
    ("beyond_rate", "Requests that waited, or were refused, beyond the tenant's rate"),
];

/// The same, each by a name.
const NAMED: &[(&str, &str)] = &[
    ("requests", "Requests executed, by the kernel's name"),
    ("refused", "Requests refused by verbgate, by reason"),
];

fn named(name: &str) -> [(&'static str, String); 1] {
    [("name", escaped(name))]
}

/// The text, from the reports of all containers. Counters of a container go with the container.
pub(super) fn metrics(all: &[Value]) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("verbgate");
    let sandboxes = Gauge::<i64>::default();
    sandboxes.set(i64::try_from(all.len())?);
    registry.register("sandboxes", "Containers with RDMA", sandboxes);
    let registry_of = &mut registry;
    let mut gauge = |key: &str, help: &str| Numbers::<Gauge>::new(registry_of, key, help);
    let supervised = gauge("supervised", "Whether a supervisor answers");
    let ucontexts = gauge("ucontexts", "Open devices");
    let objects = gauge("objects", "Live objects, by the kernel's name of their kind");
    let holds = gauge("holds", "What counts against the tenant's quotas, by key");
    let counted = gauge(
        "hw_counters",
        "What the NIC counts of the container's own queue pairs, of those that live",
    );
    let used = gauge("rdma_used", "Whether a queue pair was ever made");
    let pinned = gauge("pinned_bytes", "Memory that devices may reach");
    let mut counter = |(key, help): &(&'static str, &str)| {
        (*key, Numbers::<Counter>::new(&mut registry, key, help))
    };
    let counters: Vec<_> = COUNTERS.iter().map(&mut counter).collect();
    let by_name: Vec<_> = NAMED.iter().map(&mut counter).collect();
    for one in all {
        let answers = one.get("supervisor").is_some_and(|pid| !pid.is_null());
        supervised.add(one, &[], answers.into());
        if let Some(is_used) = one.get("rdma_used").and_then(Value::as_bool) {
            used.add(one, &[], is_used.into());
        }
        for (what, amount) in pairs(one, "holds") {
            holds.add(one, &named(what), amount);
        }
        for port in list(one, "hw_counters") {
            for (what, count) in pairs(port, "values") {
                let [name] = named(what);
                let device = ("device", escaped(text(port, "device")));
                let port = ("port", number(port, "port").to_string());
                counted.add(one, &[name, device, port], count);
            }
        }
        for served in list(one, "served").chain(one.get("past")) {
            for (key, family) in &counters {
                family.add(one, &[], number(served, key));
            }
            for (key, family) in &by_name {
                for (what, count) in pairs(served, key) {
                    family.add(one, &named(what), count);
                }
            }
            ucontexts.add(one, &[], number(served, "ucontext_count"));
            for ucontext in list(served, "ucontexts") {
                for (kind, count) in pairs(ucontext, "objects") {
                    objects.add(one, &named(kind), count);
                }
            }
            let bytes = list(served, "processes").map(|process| number(process, "pinned")).sum();
            pinned.add(one, &[], bytes);
        }
    }
    let mut out = String::new();
    encode(&mut out, &registry)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::show::tests::one;

    #[test]
    fn numbers_are_in_the_form_that_prometheus_reads() {
        let text = metrics(&[one()]).unwrap();
        for line in [
            "verbgate_sandboxes 1",
            "verbgate_requests_total{sandbox=\"c\\\"1\",name=\"CREATE_QP\"} 3",
            "verbgate_opened_total{sandbox=\"c\\\"1\"} 2",
            "verbgate_refused_total{sandbox=\"c\\\"1\",name=\"GID\"} 1",
            "verbgate_objects{sandbox=\"c\\\"1\",name=\"QP\"} 2",
            "verbgate_ucontexts{sandbox=\"c\\\"1\"} 1",
            "verbgate_holds{sandbox=\"c\\\"1\",name=\"qp\"} 2",
            "verbgate_hw_counters{sandbox=\"c\\\"1\",name=\"out_of_buffer\",device=\"mlx5_0\",port=\"1\"} 3",
            "verbgate_rdma_used{sandbox=\"c\\\"1\"} 1",
            "verbgate_pinned_bytes{sandbox=\"c\\\"1\"} 4096",
            "# EOF",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        let mut of_pod = one();
        of_pod["pod"] =
            json!({"namespace": "ml", "name": "rank-0", "uid": "7", "container": "main"});
        let text = metrics(&[of_pod]).unwrap();
        let labels = r#"{sandbox="c\"1",namespace="ml",pod="rank-0",container="main"}"#;
        assert!(text.contains(&format!("verbgate_supervised{labels} 1")), "{text}");
        assert!(metrics(&[]).unwrap().contains("verbgate_sandboxes 0"));
    }

    #[test]
    fn a_tenant_has_the_sum_of_its_containers() {
        let of = |id: &str, tenant: Option<&str>| {
            let mut one = one();
            one["id"] = id.into();
            one["tenant"] = tenant.into();
            one
        };
        let all = [of("1", Some("a")), of("2", Some("a")), of("3", Some("b")), of("4", None)];
        let text = metrics(&all).unwrap();
        for line in [
            "verbgate_opened_total{sandbox=\"1\",tenant=\"a\"} 2",
            "verbgate_opened_total{sandbox=\"4\"} 2",
            "verbgate_tenant_opened_total{tenant=\"a\"} 4",
            "verbgate_tenant_opened_total{tenant=\"b\"} 2",
            "verbgate_tenant_supervised{tenant=\"a\"} 2",
            "verbgate_tenant_requests_total{tenant=\"a\",name=\"CREATE_QP\"} 6",
            "verbgate_tenant_holds{tenant=\"a\",name=\"qp\"} 4",
            "verbgate_tenant_pinned_bytes{tenant=\"a\"} 8192",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        assert_eq!(text.matches("verbgate_tenant_opened_total{").count(), 2, "{text}");
    }
}
