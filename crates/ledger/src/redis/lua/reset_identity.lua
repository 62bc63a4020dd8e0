-- Gives the ledger a new identity, with a later time than the existing one. ARGV: its id.
local since = string.match(redis.call('GET', KEYS[1]) or '', ' (%d+) %d+$') or 0
since = string.format('%.0f', math.max(now, since + 1))
redis.call('SET', KEYS[1], table.concat({'init', ARGV[1], since, '0'}, ' '))
return {'init', ARGV[1], since, '0'}
