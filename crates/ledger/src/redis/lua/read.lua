-- Reads a record.
return {now, 0, redis.call('HGETALL', KEYS[1])}
