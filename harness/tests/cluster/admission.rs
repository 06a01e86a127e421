//! The expressions of the chart, in the Common Expression Language, evaluated as a cluster does.

use crate::common::chart;
use std::collections::HashMap;

use cel::Context;
use cel::Program;
use cel::Value as Answer;
use serde_json::Value;
use serde_json::json;

fn evaluated(expression: &Value, named: &[(&str, &Value)], variables: &Answer) -> Answer {
    let text = expression.as_str().unwrap();
    let program = Program::compile(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    let mut context = Context::default();
    context.add_variable_from_value("variables", variables.clone());
    for (name, value) in named {
        context.add_variable(*name, value).unwrap();
    }
    program.execute(&context).unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// The messages of the policy's validations that do not hold: a cluster admits an object where there is none.
fn refusals(policy: &Value, object: &Value, namespace: &Value) -> Vec<String> {
    let named = [("object", object), ("namespaceObject", namespace)];
    let list = |key: &str| policy["spec"][key].as_array().unwrap();
    let mut variables: HashMap<String, Answer> = HashMap::new();
    for one in list("variables") {
        let so_far = Answer::from(variables.clone());
        let value = evaluated(&one["expression"], &named, &so_far);
        variables.insert(one["name"].as_str().unwrap().to_owned(), value);
    }
    let variables = Answer::from(variables);
    let broken = list("validations").iter().filter(|one| {
        match evaluated(&one["expression"], &named, &variables) {
            Answer::Bool(holds) => !holds,
            other => panic!("not a truth value: {other:?}"),
        }
    });
    broken.map(|one| one["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_policy_admits_and_refuses() {
    let Some(all) = chart::rendered(&[]) else { return };
    let policy = all.iter().find(|one| one["kind"] == "ValidatingAdmissionPolicy").unwrap();
    let pod = |annotations: Value| json!({"metadata": {"name": "p", "annotations": annotations}});
    let space = |labels: Value| json!({"metadata": {"name": "n", "labels": labels}});
    let bare = json!({"metadata": {"name": "n"}});
    let of = |value: &str| space(json!({"verbgate.org/annotations": value, "a": "b"}));
    let devices = pod(json!({"a": "b", "org.verbgate.devices": "mlx5_0"}));
    let sysfs = pod(json!({"org.verbgate.sysfs": "host"}));
    let (any, shown) = ("annotations=allowed", "annotations=host");
    for (object, namespace, wanted) in [
        // Of no concern: no annotations, others', a name that only begins alike.
        (json!({"metadata": {"name": "p"}}), &bare, &[][..]),
        (pod(json!({})), &bare, &[]),
        (pod(json!({"a": "b", "xorg.verbgate.devices": "c", "org.verbgatex": "d"})), &bare, &[]),
        // Ours need a label of the namespace, with a value that is meant.
        (devices.clone(), &bare, &[any]),
        (devices.clone(), &space(json!({})), &[any]),
        (devices.clone(), &of("no"), &[any]),
        (devices.clone(), &of("allowed"), &[]),
        (devices.clone(), &of("host"), &[]),
        // What shows the node needs more.
        (sysfs.clone(), &bare, &[any, shown]),
        (sysfs.clone(), &of("allowed"), &[shown]),
        (sysfs.clone(), &of("host"), &[]),
    ] {
        let refused = refusals(policy, &object, namespace);
        assert_eq!(refused.len(), wanted.len(), "{object} in {namespace}: {refused:?}");
        for (message, needle) in refused.iter().zip(wanted) {
            assert!(message.contains(needle), "{needle}: {message}");
        }
    }
}

/// The class of the driver's devices chooses these and no others.
#[test]
fn the_device_class_chooses_the_drivers_devices() {
    let Some(all) = chart::rendered(&[("dra", "v1")]) else { return };
    let class = all.iter().find(|one| one["kind"] == "DeviceClass").unwrap();
    let expression = &class["spec"]["selectors"][0]["cel"]["expression"];
    for (driver, chosen) in [(verbgate_dra::DRIVER, true), ("gpu.example.org", false)] {
        let device = json!({"driver": driver, "attributes": {}});
        let answer = evaluated(expression, &[("device", &device)], &Answer::Null);
        assert_eq!(answer, Answer::Bool(chosen), "{driver}");
    }
}
