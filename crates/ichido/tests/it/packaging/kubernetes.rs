//! The manifests in `deploy/kubernetes`.

use serde_json::{Value, json};

use super::{assert_settings_are_accepted, assert_validates, read, validator, yaml};

const DEPLOYMENT: &str = "deploy/kubernetes/deployment.yaml";
const STATEFUL_SET: &str = "deploy/kubernetes/statefulset.yaml";

#[test]
fn manifests_match_the_schemas_of_kubernetes() {
    let validate = || {
        let mut command = validator("kubernetes-validate");
        command.arg("--strict");
        command
    };
    assert_validates(validate, DEPLOYMENT, "readOnlyRootFilesystem", "readOnlyRootFileSystem");
    assert_validates(validate, STATEFUL_SET, "replicas: 1", "replicas: one");
}

/// The object of this kind in a manifest.
fn object<'a>(manifest: &'a [Value], kind: &str) -> &'a Value {
    manifest.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// Asserts that the objects of a manifest fit together, and returns the pod of the workload.
fn assert_is_consistent(manifest: &[Value], kind: &str) -> Value {
    let workload = &object(manifest, kind)["spec"];
    let labels = &workload["template"]["metadata"]["labels"];
    assert_eq!(&workload["selector"]["matchLabels"], labels);
    let service = &object(manifest, "Service")["spec"];
    assert_eq!(&service["selector"], labels);

    let pod = workload["template"]["spec"].clone();
    let container = &pod["containers"][0];
    let ports: Vec<_> = container["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    for port in service["ports"].as_array().unwrap() {
        assert!(ports.contains(&&port["targetPort"]), "{port}");
    }
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "admin" }), "{probe}");
    }
    let settings = &object(manifest, "ConfigMap")["data"]["ichido.toml"];
    assert_settings_are_accepted(settings.as_str().unwrap());
    pod
}

/// Asserts what the "restricted" pod security standard demands, and that the container writes to volumes only.
fn assert_is_restricted(pod: &Value) {
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = &pod["containers"][0];
    let expected = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(container["securityContext"], expected);
    assert!(container["resources"]["requests"]["memory"].is_string(), "{}", container["resources"]);
}

/// Asserts that the command in the header creates every key of the secret that the container refers to.
fn assert_secret_is_complete(path: &str, pod: &Value) {
    let text = read(path);
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    let secret: Vec<_> = variables.iter().filter(|variable| variable["value"].is_null()).collect();
    assert!(secret.len() >= 2, "{variables:?}");
    for variable in secret {
        let name = variable["name"].as_str().unwrap();
        assert_eq!(variable["valueFrom"]["secretKeyRef"], json!({ "name": "ichido", "key": name }));
        assert!(text.contains(&format!("--from-literal={name}=")), "{path} does not say how to set {name}");
    }
}

#[test]
fn replicas_on_a_shared_ledger_survive_a_drain() {
    let manifest = yaml(DEPLOYMENT);
    let pod = assert_is_consistent(&manifest, "Deployment");
    assert_is_restricted(&pod);
    assert_secret_is_complete(DEPLOYMENT, &pod);
    let workload = &object(&manifest, "Deployment")["spec"];
    let budget = &object(&manifest, "PodDisruptionBudget")["spec"];
    assert_eq!((&workload["replicas"], &budget["minAvailable"]), (&json!(2), &json!(1)));
    assert_eq!(budget["selector"], workload["selector"]);
    for constraint in pod["topologySpreadConstraints"].as_array().unwrap() {
        assert_eq!(constraint["labelSelector"], workload["selector"]);
    }
}

/// A second process could not open the ledger, and a deleted volume would forget claims.
#[test]
fn file_ledger_has_one_process_and_keeps_its_volume() {
    let manifest = yaml(STATEFUL_SET);
    let pod = assert_is_consistent(&manifest, "StatefulSet");
    assert_is_restricted(&pod);
    assert_secret_is_complete(STATEFUL_SET, &pod);
    let workload = &object(&manifest, "StatefulSet")["spec"];
    assert_eq!(workload["replicas"], 1);
    let claim = &workload["volumeClaimTemplates"][0];
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOncePod"]));
    let retention = &workload["persistentVolumeClaimRetentionPolicy"];
    assert_eq!(retention, &json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }));
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let data = mounts.iter().find(|mount| mount["name"] == claim["metadata"]["name"]).unwrap();
    let settings = object(&manifest, "ConfigMap")["data"]["ichido.toml"].as_str().unwrap();
    assert!(settings.contains(&format!("file:{}/", data["mountPath"].as_str().unwrap())), "{settings}");
}
