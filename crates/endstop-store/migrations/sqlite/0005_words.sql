-- Sums are told apart by the provider's own word too, so that words of a period are counted like reasons.
DROP VIEW endstop_hours;
CREATE TABLE endstop_new_series (
    id integer PRIMARY KEY,
    team_id text NOT NULL,
    key_id text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    upstream text NOT NULL,
    dialect text NOT NULL,
    reason text NOT NULL,
    finish_reason text NOT NULL,
    action text NOT NULL,
    status text NOT NULL,
    streamed text NOT NULL,
    native_field text NOT NULL DEFAULT '',
    native_finish_reason text NOT NULL DEFAULT '',
    UNIQUE (team_id, key_id, provider, model, upstream, dialect, reason, finish_reason, action, status,
            streamed, native_field, native_finish_reason)
);
INSERT INTO endstop_new_series (id, team_id, key_id, provider, model, upstream, dialect, reason, finish_reason, action, status, streamed)
    SELECT id, team_id, key_id, provider, model, upstream, dialect, reason, finish_reason, action, status, streamed FROM endstop_series;

-- The sums of rows before this time have no words: those are counted from the rows.
INSERT INTO endstop_state SELECT 'words_since', CAST(strftime('%s', 'now') AS integer) * 1000 + 1000
    WHERE EXISTS (SELECT 1 FROM endstop_series);

DROP TABLE endstop_series;
ALTER TABLE endstop_new_series RENAME TO endstop_series;

CREATE VIEW endstop_hours AS
SELECT
    datetime(h.hour / 1000, 'unixepoch') AS hour,
    CASE WHEN s.team_id = '' THEN NULL WHEN substr(s.team_id, 1, 1) = '"' THEN substr(s.team_id, 2) ELSE s.team_id END AS team_id,
    CASE WHEN s.key_id = '' THEN NULL WHEN substr(s.key_id, 1, 1) = '"' THEN substr(s.key_id, 2) ELSE s.key_id END AS key_id,
    CASE WHEN s.provider = '' THEN NULL WHEN substr(s.provider, 1, 1) = '"' THEN substr(s.provider, 2) ELSE s.provider END AS provider,
    CASE WHEN s.model = '' THEN NULL WHEN substr(s.model, 1, 1) = '"' THEN substr(s.model, 2) ELSE s.model END AS model,
    CASE WHEN s.upstream = '' THEN NULL WHEN substr(s.upstream, 1, 1) = '"' THEN substr(s.upstream, 2) ELSE s.upstream END AS upstream,
    CASE WHEN s.dialect = '' THEN NULL WHEN substr(s.dialect, 1, 1) = '"' THEN substr(s.dialect, 2) ELSE s.dialect END AS dialect,
    CASE WHEN s.reason = '' THEN NULL WHEN substr(s.reason, 1, 1) = '"' THEN substr(s.reason, 2) ELSE s.reason END AS reason,
    CASE WHEN s.finish_reason = '' THEN NULL WHEN substr(s.finish_reason, 1, 1) = '"' THEN substr(s.finish_reason, 2) ELSE s.finish_reason END AS finish_reason,
    CASE WHEN s.action = '' THEN NULL WHEN substr(s.action, 1, 1) = '"' THEN substr(s.action, 2) ELSE s.action END AS action,
    CASE WHEN s.status = '' THEN NULL WHEN substr(s.status, 1, 1) = '"' THEN substr(s.status, 2) ELSE s.status END AS status,
    CASE WHEN s.streamed = '' THEN NULL WHEN substr(s.streamed, 1, 1) = '"' THEN substr(s.streamed, 2) ELSE s.streamed END AS streamed,
    h.count, h.repeated, h.repeated_well, h.tokens_in, h.tokens_out, h.tokens_reasoning,
    h.tokens_cached, h.tokens_of_cut, h.counted, h.first_byte_under_1ms, h.first_byte_under_2ms,
    h.first_byte_under_5ms, h.first_byte_under_10ms, h.first_byte_under_20ms, h.first_byte_under_50ms,
    h.first_byte_under_100ms, h.first_byte_under_200ms, h.first_byte_under_350ms,
    h.first_byte_under_500ms, h.first_byte_under_750ms, h.first_byte_under_1000ms,
    h.first_byte_under_1500ms, h.first_byte_under_2000ms, h.first_byte_under_3500ms,
    h.first_byte_under_5000ms, h.first_byte_under_7500ms, h.first_byte_under_10000ms,
    h.first_byte_under_20000ms, h.first_byte_under_35000ms, h.first_byte_under_60000ms,
    h.first_byte_under_120000ms, h.first_byte_under_300000ms, h.first_byte_over, h.total_under_1ms,
    h.total_under_2ms, h.total_under_5ms, h.total_under_10ms, h.total_under_20ms, h.total_under_50ms,
    h.total_under_100ms, h.total_under_200ms, h.total_under_350ms, h.total_under_500ms,
    h.total_under_750ms, h.total_under_1000ms, h.total_under_1500ms, h.total_under_2000ms,
    h.total_under_3500ms, h.total_under_5000ms, h.total_under_7500ms, h.total_under_10000ms,
    h.total_under_20000ms, h.total_under_35000ms, h.total_under_60000ms, h.total_under_120000ms,
    h.total_under_300000ms, h.total_over,
    CASE WHEN s.native_field = '' THEN NULL WHEN substr(s.native_field, 1, 1) = '"' THEN substr(s.native_field, 2) ELSE s.native_field END AS native_field,
    CASE WHEN s.native_finish_reason = '' THEN NULL WHEN substr(s.native_finish_reason, 1, 1) = '"' THEN substr(s.native_finish_reason, 2) ELSE s.native_finish_reason END AS native_finish_reason
FROM endstop_sums AS h JOIN endstop_series AS s ON s.id = h.series;
