-- Appended to every script: prints the results on one line.
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("SEEN %d %d %d %d %d\n", summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout, latency:percentile(50),
    latency:percentile(99)))
end
