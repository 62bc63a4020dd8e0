-- Arguments: the kind of load (new, same, known, plain, get), a name for this run's keys, and for `known` their number.
local made, threads = 0, 0
local head, tail, what, run, known

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(arguments)
  what, run, known = arguments[1], arguments[2], tonumber(arguments[3] or "0")
  math.randomseed(known)
  local fields = "Host: bench\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\n"
  local body = '{"amount":12,"note":"' .. string.rep("x", 177) .. '"}'
  if what == "get" then
    head = "GET /orders HTTP/1.1\r\n" .. fields .. "\r\n"
  elseif what == "plain" then
    head = "POST /orders HTTP/1.1\r\n" .. fields .. "Content-Length: " .. #body .. "\r\n\r\n" .. body
  else
    head = "POST /orders HTTP/1.1\r\n" .. fields .. 'Idempotency-Key: "' .. run .. "-" .. number .. "-"
    tail = '"\r\nContent-Length: ' .. #body .. "\r\n\r\n" .. body
  end
end

function request()
  if what == "new" then
    made = made + 1
    return head .. made .. tail
  elseif what == "known" then
    return head .. math.random(known) .. tail
  elseif what == "same" then
    return head .. 0 .. tail
  end
  return head
end

