-- Runs the script's body, as the function `run`, for each of many keys. ARGV: for each key, the number of arguments and the
-- arguments. An error concerns only its key.
local replies, at = {}, 1
for place, key in ipairs(KEYS) do
    local last = at + ARGV[at]
    local is_ok, reply = pcall(run, {key}, {unpack(ARGV, at + 1, last)})
    if not is_ok then
        reply = redis.error_reply(type(reply) == 'table' and reply.err or reply)
    end
    replies[place], at = reply, last + 1
end
return replies
