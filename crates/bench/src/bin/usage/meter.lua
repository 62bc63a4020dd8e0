-- Arguments: a name for this run's records, and the number of records per batch.
local made, threads = 0, 0
local run, batch

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(arguments)
  run, batch = arguments[1], tonumber(arguments[2])
end

local head = '{"usage_date":"2025-11-29","provider":"anthropic","model":"claude-3-5-sonnet-20241022","input_tokens":1200,'
  .. '"output_tokens":300,"total_tokens":1500,"request_count":4,"cost_actual":0.0081234,"currency":"USD",'
  .. '"metadata":{"source_system":"dify","source_app_id":"dc279ec4-0860-46e2-a789-d4b4238443de",'
  .. '"source_app_name":"Help desk","aggregation_method":"daily_sum",'
  .. '"source_event_id":"dify-2025-11-29-anthropic-claude-3-5-sonnet-20241022-'

function request()
  local records = {}
  for at = 1, batch do
    made = made + 1
    records[at] = head .. run .. "-" .. number .. "-" .. made .. '"}}'
  end
  local body = '{"batchIdempotencyKey":"' .. run .. "-" .. number .. "-" .. made .. '","records":['
    .. table.concat(records, ",") .. "]}"
  return "POST /v1/usage HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    .. #body .. "\r\n\r\n" .. body
end

