-- Dify's tables: only the columns that the export reads, and the indexes that it uses.
CREATE TABLE apps (id uuid PRIMARY KEY, tenant_id uuid NOT NULL, name varchar(255) NOT NULL, mode varchar(255) NOT NULL);
CREATE TABLE end_users (id uuid PRIMARY KEY, session_id varchar(255) NOT NULL);
CREATE TABLE accounts (id uuid PRIMARY KEY, email varchar(255) NOT NULL);
CREATE TABLE messages (id uuid PRIMARY KEY, app_id uuid NOT NULL, model_provider varchar(255), model_id varchar(255),
    message_tokens integer NOT NULL DEFAULT 0, answer_tokens integer NOT NULL DEFAULT 0, total_price numeric(10,7),
    currency varchar(255) NOT NULL, invoke_from varchar(255), from_end_user_id uuid, from_account_id uuid,
    created_at timestamp NOT NULL, updated_at timestamp NOT NULL);
CREATE INDEX message_created_at_id_idx ON messages (created_at, id);
CREATE TABLE workflow_runs (id uuid PRIMARY KEY, app_id uuid NOT NULL, triggered_from varchar(255) NOT NULL,
    created_by_role varchar(255) NOT NULL, created_by uuid NOT NULL, created_at timestamp NOT NULL);
CREATE INDEX workflow_run_created_at_id_idx ON workflow_runs (created_at, id);
CREATE TABLE workflow_node_executions (id uuid PRIMARY KEY, workflow_run_id uuid, node_type varchar(255) NOT NULL,
    process_data text, outputs text, execution_metadata text);
CREATE INDEX workflow_node_executions_run_idx ON workflow_node_executions (workflow_run_id);
