//! The SQL statements. They only read.
//!
//! A page begins after the last row of the page before, and the first page begins at the start of the range. A
//! second lower bound would only mislead the planner: it then expects few rows, and PostgreSQL 15 looks up the user
//! of each row again (twenty times the buffers).

/// Messages of apps that are counted by message.
pub(super) const MESSAGES: &str = "\
SELECT m.id::text, m.created_at, m.app_id::text, a.tenant_id::text, a.name::text, a.mode::text,
       m.model_provider::text, m.model_id::text, m.message_tokens::int8, m.answer_tokens::int8,
       m.total_price::text, m.currency::text, m.invoke_from::text,
       m.from_end_user_id::text, e.session_id::text, m.from_account_id::text, c.email::text
  FROM messages m
  JOIN apps a ON a.id = m.app_id
  LEFT JOIN end_users e ON e.id = m.from_end_user_id
  LEFT JOIN accounts c ON c.id = m.from_account_id
 WHERE m.created_at < $1 AND (m.created_at, m.id) > ($2, $3::text::uuid)
   AND a.mode IN ('chat', 'completion', 'agent-chat')
   AND ($4::text IS NULL OR a.tenant_id::text = $4)
 ORDER BY m.created_at, m.id
 LIMIT $5";

/// Nodes that may have called a model, from runs of the other apps.
pub(super) const NODES: &str = "\
SELECT r.id::text AS run_id, r.created_at, n.id::text AS id, r.app_id::text, a.tenant_id::text, a.name::text, a.mode::text,
       r.triggered_from::text, r.created_by_role::text, r.created_by::text, e.session_id::text, c.email::text,
       n.process_data::text, n.outputs::text, n.execution_metadata::text
  FROM workflow_runs r
  JOIN apps a ON a.id = r.app_id
  JOIN workflow_node_executions n ON n.workflow_run_id = r.id
  LEFT JOIN end_users e ON r.created_by_role = 'end_user' AND e.id = r.created_by
  LEFT JOIN accounts c ON r.created_by_role = 'account' AND c.id = r.created_by
 WHERE r.created_at < $1 AND (r.created_at, r.id) >= ($2, $3::text::uuid)
   AND ((r.created_at, r.id) > ($2, $3::text::uuid) OR n.id > $6::text::uuid)
   AND a.mode IN ('workflow', 'advanced-chat')
   AND ($4::text IS NULL OR a.tenant_id::text = $4)
   AND NOT n.node_type = ANY ($7::text[])
   AND (n.process_data LIKE '%\"usage\"%' OR n.outputs LIKE '%\"usage\"%' OR n.execution_metadata LIKE '%total_tokens%')
 ORDER BY r.created_at, r.id, n.id
 LIMIT $5";

/// The earliest message that has changed since a given time.
pub(super) const CHANGED: &str = "\
SELECT min(created_at) FROM messages WHERE updated_at >= $1 AND created_at >= $2 AND created_at < $3";

/// The columns that exist in the tables we read.
pub(super) const COLUMNS: &str = "\
SELECT c.relname::text, a.attname::text
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
 WHERE c.oid = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name) AND a.attnum > 0 AND NOT a.attisdropped";
