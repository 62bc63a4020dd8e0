//! `ichido run` with several components in one process.

use ichido_testkit::http_client::{get, post};
use ichido_testkit::orders::Orders;
use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;

use super::Fixture;

#[test]
fn gateway_meter_and_sender_share_a_process_and_an_admin_port() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    fixture.receiver.on_batch(|_| Reply::Accept);
    let orders = Orders::start(fixture.path());
    let settings = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{}\"\n[meter]\nlisten = \"127.0.0.1:0\"\n",
        orders.address
    );
    std::fs::write(fixture.path().join("ichido.toml"), settings).unwrap();
    let mut daemon = Process::start(&mut fixture.command(&["run", "--admin", "127.0.0.1:0"])).unwrap();
    let [gateway, meter, admin] = ["gateway listening on ", "meter listening on ", "admin on "]
        .map(|text| daemon.wait_for_address(text).unwrap());
    eventually("an empty spool", || (fixture.receiver.record_count() == 3).then_some(()));
    let first = post(gateway, "/orders", "\"k1\"", "{\"qty\":1}");
    let second = post(gateway, "/orders", "\"k1\"", "{\"qty\":1}");
    assert_eq!((first.status, first.text()), (second.status, second.text()));
    assert_eq!(orders.effects().len(), 1);
    assert_eq!(get(meter, "/v1/usage").status, 200);
    let ready = get(admin, "/readyz").text();
    assert!(["ledger", "delivery", "meter"].iter().all(|component| ready.contains(component)), "{ready}");
    eventually("a spool gauge of 0", || {
        get(admin, "/metrics").text().contains("ichido_delivery_spool_files 0").then_some(())
    });
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), 0, "{}", daemon.stderr());
    fixture.receiver.assert_each_record_once(3);
}

#[test]
fn single_section_starts_only_its_component() {
    let fixture = Fixture::new();
    let orders = Orders::start(fixture.path());
    let settings = format!("[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{}\"\n", orders.address);
    std::fs::write(fixture.path().join("ichido.toml"), settings).unwrap();
    let mut command = fixture.command(&["run", "--admin", "off"]);
    command.env_remove("EXTERNAL_API_ENDPOINT").env_remove("EXTERNAL_API_TOKEN");
    let mut daemon = Process::start(&mut command).unwrap();
    let gateway = daemon.wait_for_address("gateway listening on ").unwrap();
    assert!(post(gateway, "/orders", "\"k1\"", "{\"qty\":1}").status < 300);
    assert!(!daemon.stderr().contains("delivering"), "{}", daemon.stderr());
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), 0, "{}", daemon.stderr());
}
