-- What a clock of nanoseconds adds to a recording: the step to this schema, which a
-- new recording takes too. docs/reference/recording.md explains it.

ALTER TABLE block ADD COLUMN duration_ns INTEGER NOT NULL DEFAULT 0; -- 0: a clock without time

-- What a node took in a block, direction and context.
CREATE TABLE timed (
  id             INTEGER NOT NULL PRIMARY KEY,
  block          INTEGER NOT NULL REFERENCES block(id),
  direction      TEXT NOT NULL,      -- as in cost
  context        TEXT NOT NULL,
  node           INTEGER NOT NULL REFERENCES node(id),
  calls          INTEGER NOT NULL,   -- that returned in the window
  total_ns       INTEGER NOT NULL,   -- entry to exit, as read, less what interrupted
  min_ns         INTEGER NOT NULL,
  max_ns         INTEGER NOT NULL,
  corrected_ns   REAL,               -- total_ns less the probes' own cost; NULL: not known
  uncertainty_ns REAL                -- half the width of its 95 % interval
) STRICT;

CREATE TABLE timed_bucket (
  timed  INTEGER NOT NULL REFERENCES timed(id),
  bucket INTEGER NOT NULL,           -- see bucket_bounds
  calls  INTEGER NOT NULL,
  PRIMARY KEY (timed, bucket)
) STRICT, WITHOUT ROWID;

-- What a stage took in a block.
CREATE TABLE stage (
  id          INTEGER NOT NULL PRIMARY KEY,
  block       INTEGER NOT NULL REFERENCES block(id),
  direction   TEXT NOT NULL,
  place       INTEGER NOT NULL,      -- on the way, from 0
  name        TEXT NOT NULL,
  kind        TEXT NOT NULL,         -- work, wait, unaccounted, total
  packets     INTEGER NOT NULL,      -- that went through it
  passed_over INTEGER NOT NULL,      -- on this way, but not through it
  total_ns    INTEGER NOT NULL,
  min_ns      INTEGER NOT NULL,
  max_ns      INTEGER NOT NULL
) STRICT;

CREATE TABLE stage_bucket (
  stage   INTEGER NOT NULL REFERENCES stage(id),
  bucket  INTEGER NOT NULL,
  packets INTEGER NOT NULL,
  PRIMARY KEY (stage, bucket)
) STRICT, WITHOUT ROWID;

-- By what functions were timed.
CREATE TABLE attachment (
  function  INTEGER NOT NULL REFERENCES function(id),
  mechanism TEXT NOT NULL,           -- fsession, fentry+fexit, kprobe.session ...
  arguments INTEGER NOT NULL
) STRICT;

-- What the probes cost, measured on an empty function.
CREATE TABLE calibration (
  cpu            INTEGER,            -- NULL: the median of all
  mechanism      TEXT NOT NULL,
  arguments      INTEGER NOT NULL,
  bias_ns        REAL NOT NULL,      -- what is read for a function that does nothing
  pair_ns        REAL NOT NULL,      -- what a probe pair takes, the bias included
  uncertainty_ns REAL NOT NULL
) STRICT;

CREATE TABLE counter (
  block INTEGER NOT NULL REFERENCES block(id),
  name  TEXT NOT NULL,               -- dotted: ledger.udp tx.xmit
  value REAL NOT NULL,
  unit  TEXT NOT NULL
) STRICT;

-- Packets told one by one.
CREATE TABLE step (
  packet      INTEGER NOT NULL,
  name        TEXT NOT NULL,
  begin_ns    INTEGER NOT NULL,      -- on the monotonic clock
  duration_ns INTEGER NOT NULL,
  cpu         INTEGER NOT NULL,
  thread      INTEGER NOT NULL,
  command     TEXT NOT NULL,
  context     TEXT NOT NULL
) STRICT;

-- The shortest and the longest time of a bucket, in nanoseconds.
CREATE VIEW bucket_bounds AS
WITH RECURSIVE each(bucket) AS (
  SELECT 0 UNION ALL SELECT bucket + 1 FROM each WHERE bucket < 511
)
SELECT bucket,
       CASE WHEN bucket < 16 THEN bucket
            ELSE (16 + bucket % 16) << (bucket / 16 - 1) END AS from_ns,
       CASE WHEN bucket < 16 THEN bucket
            ELSE ((17 + bucket % 16) << (bucket / 16 - 1)) - 1 END AS to_ns
FROM each;

-- Times of every function, by block, direction and context. Means over all calls,
-- those within another call of the same function too.
CREATE VIEW function_time AS
SELECT t.block, b.arm, a.proto || ' ' || t.direction AS class, t.context,
       f.id AS function, f.name, f.module, f.layer, sum(t.calls) AS calls,
       sum(t.total_ns) * 1.0 / sum(t.calls) AS raw_ns_per_call,
       sum(t.corrected_ns) / sum(t.calls) AS corrected_ns_per_call,
       max(t.max_ns) AS max_ns
FROM timed t
JOIN block b ON b.id = t.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = t.node
JOIN function f ON f.id = n.function
GROUP BY t.block, t.direction, t.context, f.id;

-- Corrected time of every function less that of the timed functions below it.
CREATE VIEW function_self_time AS
WITH below AS (
  SELECT t.block, t.direction, t.context, n.parent AS node, sum(t.corrected_ns) AS ns
  FROM timed t JOIN node n ON n.id = t.node
  WHERE n.parent IS NOT NULL
  GROUP BY t.block, t.direction, t.context, n.parent
)
SELECT t.block, b.arm, a.proto || ' ' || t.direction AS class, t.context,
       f.id AS function, f.name, f.module, f.layer, sum(t.calls) AS calls,
       sum(t.corrected_ns - coalesce(below.ns, 0)) AS self_ns
FROM timed t
JOIN block b ON b.id = t.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = t.node
JOIN function f ON f.id = n.function
LEFT JOIN below ON below.block = t.block AND below.direction = t.direction
  AND below.context = t.context AND below.node = t.node
GROUP BY t.block, t.direction, t.context, f.id;

-- How the times of a function are distributed.
CREATE VIEW function_histogram AS
SELECT t.block, b.arm, a.proto || ' ' || t.direction AS class, t.context,
       f.id AS function, f.name, h.bucket, bounds.from_ns, bounds.to_ns, sum(h.calls) AS calls
FROM timed_bucket h
JOIN timed t ON t.id = h.timed
JOIN block b ON b.id = t.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = t.node
JOIN function f ON f.id = n.function
JOIN bucket_bounds bounds ON bounds.bucket = h.bucket
GROUP BY t.block, t.direction, t.context, f.id, h.bucket;

-- What a stage took of every packet on its way; a packet that passed it over took
-- none, so the stages of a way add up to its total.
CREATE VIEW stage_time AS
SELECT s.block, b.arm, a.proto || ' ' || s.direction AS class, s.place, s.name, s.kind,
       s.packets, s.passed_over,
       s.total_ns * 1.0 / (s.packets + s.passed_over) AS ns_per_packet, s.max_ns
FROM stage s
JOIN block b ON b.id = s.block
JOIN arm a ON a.id = b.arm;
