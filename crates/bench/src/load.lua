-- Arguments: the kind of load (new, same, known, plain, get, tenants), a name for this run's keys, and a number: of those
-- keys for `known`, of callers with credentials of their own for `tenants`.
local made, threads = 0, 0
local head, tail, what, run, count

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(arguments)
  what, run, count = arguments[1], arguments[2], tonumber(arguments[3] or "0")
  math.randomseed(count)
  local fields = "Host: bench\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\n"
  if what == "tenants" then fields = "Host: bench\r\nContent-Type: application/json\r\nAuthorization: Bearer " end
  local body = '{"amount":12,"note":"' .. string.rep("x", 177) .. '"}'
  if what == "get" then
    head = "GET " .. wrk.path .. " HTTP/1.1\r\n" .. fields .. "\r\n"
  elseif what == "plain" then
    head = "POST " .. wrk.path .. " HTTP/1.1\r\n" .. fields .. "Content-Length: " .. #body .. "\r\n\r\n" .. body
  elseif what == "tenants" then
    head = "POST " .. wrk.path .. " HTTP/1.1\r\n" .. fields
    tail = '"\r\nContent-Length: ' .. #body .. "\r\n\r\n" .. body
  else
    head = "POST " .. wrk.path .. " HTTP/1.1\r\n" .. fields .. 'Idempotency-Key: "' .. run .. "-" .. number .. "-"
    tail = '"\r\nContent-Length: ' .. #body .. "\r\n\r\n" .. body
  end
end

function request()
  if what == "new" then
    made = made + 1
    return head .. made .. tail
  elseif what == "tenants" then
    made = made + 1
    return head .. math.random(count) .. '\r\nIdempotency-Key: "' .. run .. "-" .. number .. "-" .. made .. tail
  elseif what == "known" then
    return head .. math.random(count) .. tail
  elseif what == "same" then
    return head .. 0 .. tail
  end
  return head
end

