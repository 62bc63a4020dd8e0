-- Arguments: a name for this run's keys, and the number of events per call; 0 repeats a single event.
local made, threads = 0, 0
local run, batch, same

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

local function call(body)
  return "POST /v1/events/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    .. #body .. "\r\n\r\n" .. body
end

function init(arguments)
  run, batch = arguments[1], tonumber(arguments[2])
  same = call('{"events":[{"key":"' .. run .. '"}]}')
end

function request()
  if batch == 0 then
    return same
  end
  local events = {}
  for at = 1, batch do
    made = made + 1
    events[at] = '{"key":"' .. run .. "-" .. number .. "-" .. made .. '"}'
  end
  return call('{"events":[' .. table.concat(events, ",") .. "]}")
end

