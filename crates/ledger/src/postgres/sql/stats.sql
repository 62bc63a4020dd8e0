WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
)
SELECT
    count(c.index) FILTER (WHERE c.state = 'running' AND c.doubt_at > clock.now) AS running,
    count(c.index) FILTER (WHERE c.state = 'in-doubt' OR c.state = 'running' AND c.doubt_at <= clock.now) AS in_doubt,
    count(c.index) FILTER (WHERE c.state = 'done') AS done,
    (SELECT count(*) FROM ichido.marks, clock WHERE expires_at > now) AS marks
FROM clock LEFT JOIN ichido.claims AS c ON c.over_at > clock.now
